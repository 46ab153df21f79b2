"""Words that say nothing of what a question is about.

Function words of the languages that are asked in most; elsewhere every word counts. Words that also name things (it,
us, may) are left out.
"""

_LISTS = {
    "english": """
        a an the this that these those some any each such
        i me my we our you your he him his she her its they them their
        am is are was were be been being do does did done doing has have had having
        can could will would shall should must might ought
        and or but nor not no so than then if as because while until though although
        of in on at to from by for with about into onto over under between through during upon within without
        what which who whom whose when where why how
        there here also only very just too
        s t d m ll re ve
    """,
    "french": """
        le la les l un une des du de d au aux ce cet cette ces
        je j me m tu te t il elle on nous vous ils elles se s lui leur mon ma mes ton ta tes son sa ses
        notre nos votre vos
        suis es est sommes êtes sont était étaient être ai as a avons avez ont avait avoir
        et ou mais ni ne n pas que qu qui quoi dont où si comme quand pourquoi comment quel quelle quels quelles
        à dans en par pour avec sans sur sous entre vers chez c y
    """,
    "german": """
        der die das den dem des ein eine einen einem einer eines dieser diese dieses diesen diesem
        ich mich mir du dich dir er ihn ihm sie ihr es wir uns euch mein dein sein unser
        bin bist ist sind seid war waren wird werden wurde wurden hat haben hatte hatten
        kann können muss müssen soll sollen
        und oder aber nicht kein keine so als wie wenn weil dass ob denn
        in im an am auf aus bei beim mit nach von vom vor zu zum zur für über unter um durch gegen ohne bis
        was wer wen wem wessen wann wo warum welche welcher welches
        auch nur noch schon sehr
    """,
    "italian": """
        il lo la i gli le l un uno una dei degli delle questo questa questi queste
        io mi tu ti lui lei si noi ci voi vi loro mio mia tuo tua suo sua nostro nostra
        sono sei è siamo siete era erano essere stato ho hai ha abbiamo avete hanno aveva
        e ed o ma né non che chi cui se come quando dove perché quale quali cosa
        di del della dei dell d a ad al alla ai alle all da dal dalla dall in nel nella nei nelle nell
        con su sul sulla per tra fra
    """,
    "portuguese": """
        o a os as um uma uns umas este esta estes estas esse essa isso isto
        eu me tu te ele ela se nós nos vós eles elas lhe meu minha seu sua
        sou é somos são era eram ser foi está estão estar tem têm tinha ter há
        e ou mas nem não que quem se como quando onde porque qual quais
        de do da dos das d em no na nos nas a ao à aos às por pelo pela para com sem sobre entre
    """,
    "spanish": """
        el la los las lo un una unos unas este esta estos estas ese esa eso esto
        yo me tú te él ella se nosotros vosotros ellos ellas le les nos mi tu su sus
        soy eres es somos son era eran ser fue está están estar he ha hemos han había hay
        y e o u pero ni no que quien si como cuando donde porque qué quién cómo cuándo dónde cuál cuáles
        de del en a al por para con sin sobre entre
    """,
}

STOP_WORDS = {language: frozenset(words.split()) for language, words in _LISTS.items()}
