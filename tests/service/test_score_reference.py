"""What is right: entitlement first, then a score that explains itself."""

import math
from collections.abc import Sequence

import pytest
from freshgate_documents import ENOUGH, TERMS, WEIGHTS, Entitled, Scorer, World, queries, worlds
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from freshgate_service.domain import Match, ObjectKey, Scored
from freshgate_service.score import Analysed, Analyser, Weights, cut, score_all
from freshgate_service.score.bm25f import QUANTUM

ENGLISH = Analyser("english")

MUTATED = settings(ENOUGH, max_examples=500, phases=[Phase.generate])  # what it finds need not be small


def one(record_id: str, title: str = "", body: str = "") -> Analysed:
    return Analysed(ObjectKey("tickets", record_id), title.split(), body.split())


def everything(_: ObjectKey) -> bool:
    return True


def ranked(query: str, documents: Sequence[Analysed], limit: int = 10) -> list[str]:
    return [each.key.record_id for each in cut(score_all(query.split(), documents, everything, WEIGHTS), limit)]


# --- what every scorer must hold, and the mutants that must not ------------------------------------------------------


def assert_unentitled_objects_get_nothing(scorer: Scorer, query: Sequence[str], world: World, limit: int) -> None:
    scored = scorer(query, world.documents, world.entitled, WEIGHTS)
    assert set(scored) == {document.key for document in world.documents}
    for key, each in scored.items():
        if not world.entitled(key):
            assert each == Scored(key, 0.0, ())
            assert math.copysign(1.0, each.score) == 1.0
    assert all(world.entitled(each.key) for each in cut(scored, limit))


def assert_unentitled_objects_change_nothing(scorer: Scorer, query: Sequence[str], world: World, limit: int) -> None:
    among_others = scorer(query, world.documents, world.entitled, WEIGHTS)
    alone = scorer(query, world.slice_, world.entitled, WEIGHTS)
    assert {key: each for key, each in among_others.items() if world.entitled(key)} == alone
    assert cut(among_others, limit) == cut(alone, limit)


def filtered_after_the_cut(
    query: Sequence[str], documents: Sequence[Analysed], entitled: Entitled, weights: Weights, limit: int = 3
) -> dict[ObjectKey, Scored]:
    """Leaks: the best of all are cut, then those that may be seen are kept. Others push them out."""
    best = {each.key: each for each in cut(score_all(query, documents, everything, weights), limit)}
    return {
        key: best[key] if key in best and entitled(key) else Scored(key, 0.0, ())
        for key in (document.key for document in documents)
    }


def weighed_by_the_whole_corpus(
    query: Sequence[str], documents: Sequence[Analysed], entitled: Entitled, weights: Weights
) -> dict[ObjectKey, Scored]:
    """Leaks: document frequencies and lengths are those of all objects."""
    scored = score_all(query, documents, everything, weights)
    return {key: each if entitled(key) else Scored(key, 0.0, ()) for key, each in scored.items()}


def not_filtered_at_all(
    query: Sequence[str], documents: Sequence[Analysed], entitled: Entitled, weights: Weights
) -> dict[ObjectKey, Scored]:
    return score_all(query, documents, everything, weights)


@pytest.mark.promise("ENT-1")
@ENOUGH
@given(queries(), worlds(), st.integers(1, 5))
def test_an_object_that_the_asker_may_not_see_scores_exactly_zero(query, world, limit):
    assert_unentitled_objects_get_nothing(score_all, query, world, limit)


@pytest.mark.promise("ENT-1")
@ENOUGH
@given(st.text(), st.lists(st.tuples(st.text(), st.text(), st.booleans()), max_size=6))
def test_no_text_of_a_query_or_a_record_gives_an_unentitled_object_a_score(query, texts):
    documents = [
        Analysed(ObjectKey("tickets", str(number)), ENGLISH.terms(title), ENGLISH.terms(body + query))
        for number, (title, body, _) in enumerate(texts)
    ]
    visible = {document.key for document, (_, _, seen) in zip(documents, texts, strict=True) if seen}
    world = World(documents, frozenset(visible))
    assert_unentitled_objects_get_nothing(score_all, ENGLISH.query_terms(query), world, 10)
    assert_unentitled_objects_change_nothing(score_all, ENGLISH.query_terms(query), world, 10)


@pytest.mark.promise("ENT-4")
@ENOUGH
@given(queries(), worlds(), st.integers(1, 5))
def test_the_scores_of_a_slice_are_the_same_floats_whatever_else_there_is(query, world, limit):
    assert_unentitled_objects_change_nothing(score_all, query, world, limit)


@pytest.mark.promise("ENT-4")
def test_replay_8_a_thousand_unentitled_objects_with_the_terms_of_the_query_change_no_bit():
    mine = [one("1", "refund polici", "late fee refund"), one("2", "invoic", "refund"), one("3", "late fee")]
    theirs = [one(f"x{number}", "refund late", "refund polici late fee") for number in range(1000)]
    world = World([*theirs, *mine], frozenset(each.key for each in mine))
    assert_unentitled_objects_change_nothing(score_all, ["refund", "late", "polici"], world, 10)
    assert_unentitled_objects_get_nothing(score_all, ["refund", "late", "polici"], world, 10)


@pytest.mark.promise("ENT-1", "ENT-4")
@pytest.mark.parametrize("mutant", [filtered_after_the_cut, weighed_by_the_whole_corpus])
def test_a_scorer_whose_scores_depend_on_unentitled_objects_is_caught(mutant):
    @MUTATED
    @given(queries(), worlds(), st.integers(1, 5))
    def unentitled_objects_change_nothing(query, world, limit):
        assert_unentitled_objects_change_nothing(mutant, query, world, limit)

    with pytest.raises(AssertionError):
        unentitled_objects_change_nothing()


@pytest.mark.promise("ENT-1")
def test_a_scorer_that_forgets_to_ask_who_may_see_is_caught():
    @MUTATED
    @given(queries(), worlds(), st.integers(1, 5))
    def unentitled_objects_get_nothing(query, world, limit):
        assert_unentitled_objects_get_nothing(not_filtered_at_all, query, world, limit)

    with pytest.raises(AssertionError):
        unentitled_objects_get_nothing()


# --- the formula ---------------------------------------------------------------------------------------------------


@pytest.mark.promise("SCO-1")
def test_a_score_is_that_of_the_published_formula():
    documents = [one("1", "refund", "late fee"), one("2", "fee polici", "refund refund"), one("3", "", "late")]
    scored = score_all(["refund"], documents, everything, Weights(title=3.0))
    # Two of three objects have the term; titles have one term on average, bodies 5/3; K1 is 2, B is 0.5.
    rarity = math.log(1 + (3 - 2 + 0.5) / (2 + 0.5))
    in_title = 3 * 1 / (0.5 + 0.5 * 1 / 1)
    in_body = 1 * 2 / (0.5 + 0.5 * 2 / (5 / 3))
    assert scored[documents[0].key].score == pytest.approx(rarity * in_title / (2 + in_title), abs=QUANTUM)
    assert scored[documents[1].key].score == pytest.approx(rarity * in_body / (2 + in_body), abs=QUANTUM)
    assert scored[documents[2].key] == Scored(documents[2].key, 0.0, ())


@pytest.mark.promise("SCO-1")
@ENOUGH
@given(queries(), worlds())
def test_a_score_is_the_exact_sum_of_its_matches_in_any_order(query, world):
    for each in score_all(query, world.documents, world.entitled, WEIGHTS).values():
        assert each.score == sum(match.score for match in each.matched)
        assert each.score == sum(match.score for match in reversed(each.matched))
        assert all((match.score / QUANTUM).is_integer() for match in each.matched)


@pytest.mark.promise("SCO-1")
@ENOUGH
@given(queries(), worlds())
def test_an_explanation_names_each_term_of_the_query_in_each_field_that_has_it(query, world):
    scored = score_all(query, world.documents, world.entitled, WEIGHTS)
    for document in world.slice_:
        expected = [
            (term, field)
            for term in query
            for field, terms in (("title", document.title), ("body", document.body))
            if term in terms
        ]
        assert [(match.term, match.field) for match in scored[document.key].matched] == expected
        assert all(match.score > 0 for match in scored[document.key].matched)


@pytest.mark.promise("SCO-1")
def test_a_term_that_every_object_has_still_scores_above_zero():
    assert ranked("refund", [one(str(number), "refund", "refund " * 50) for number in range(200)], 300) != []


@pytest.mark.promise("SCO-1")
def test_a_match_scores_above_zero_however_long_its_field_is():
    common = [one(str(number), "refund") for number in range(1000)]
    vast = Analysed(ObjectKey("tickets", "vast"), [], ["refund", *["x"] * 10_000_000])
    scored = score_all(["refund"], [*common, vast], everything, Weights(title=1.0, body=1e-9))[vast.key]
    assert scored == Scored(vast.key, QUANTUM, (Match("refund", "body", QUANTUM),))


@pytest.mark.promise("SCO-1")
@ENOUGH
@given(st.lists(st.sampled_from([term for term in TERMS if term != "refund"]), max_size=5))
def test_a_title_counts_for_more_than_a_body(others):
    in_title = Analysed(ObjectKey("tickets", "z"), ["refund", *others], ["x", *others])
    in_body = Analysed(ObjectKey("tickets", "a"), ["x", *others], ["refund", *others])
    scored = score_all(["refund"], [in_body, in_title], everything, WEIGHTS)
    assert scored[in_title.key].score > scored[in_body.key].score


@pytest.mark.promise("SCO-1")
def test_a_rarer_term_counts_for_more():
    documents = [one("1", "refund fee"), one("2", "refund"), one("3", "refund")]
    refund, fee = score_all(["refund", "fee"], documents, everything, WEIGHTS)[documents[0].key].matched
    assert fee.score > refund.score


@pytest.mark.promise("SCO-1")
def test_equal_scores_stand_in_the_order_of_their_ids_as_text():
    keys = [ObjectKey(*each) for each in (("b", "1"), ("a", "10"), ("a", "9"), ("a-b", "1"), ("a", "Z"), ("a", "é"))]
    scored = score_all(["fee"], [Analysed(key, ["fee"], []) for key in keys], everything, WEIGHTS)
    assert [each.key.text for each in cut(scored, 5)] == ["a-b/1", "a/10", "a/9", "a/Z", "a/é"]


def test_the_cut_drops_what_scored_zero_and_all_past_the_limit():
    documents = [one("1", "fee fee"), one("2", "late"), one("3", "fee"), one("4", "", "fee")]
    assert ranked("fee", documents) == ["1", "3", "4"]
    assert ranked("fee", documents, limit=2) == ["1", "3"]
    assert ranked("fee", documents, limit=0) == []


@pytest.mark.parametrize("documents", [[], [one("1")], [one("1"), one("2", "", "fee")], [one("1", "fee")]], ids=len)
def test_empty_slices_and_empty_fields_are_scored_without_a_fault(documents):
    scored = score_all(["fee", "unheard"], documents, everything, WEIGHTS)
    assert {key.record_id for key, each in scored.items() if each.score > 0} == {
        document.key.record_id for document in documents if "fee" in (*document.title, *document.body)
    }
    assert score_all(["fee"], documents, lambda _: False, WEIGHTS) == {
        document.key: Scored(document.key, 0.0, ()) for document in documents
    }


# --- from text to answer -------------------------------------------------------------------------------------------

RECORDS = {
    "tokyo": ("東京の請求書", "品川オフィスの支払い"),
    "flower": ("花名", "华东区客户的退款"),
    "cyrillic": ("Возврат платежа", "Клиент из Москвы просит вернуть деньги"),
    "arabic": ("فاتورة متأخرة", "طلب العميل استرداد المبلغ"),
    "accents": ("Cafe\u0301 Zu\u0308rich", "re\u0301sume\u0301 of the naïve façade"),
    "emoji": ("Deploy 🚀", "all green ✅ 🇩🇪"),
    "thai": ("ใบแจ้งหนี้", "ลูกค้าขอเงินคืน"),
    "english": ("Refund policy", "Customers may return goods within thirty days"),
}
ANALYSED = [
    Analysed(ObjectKey("tickets", name), ENGLISH.terms(title), ENGLISH.terms(body))
    for name, (title, body) in RECORDS.items()
]


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("東京", "tokyo"), ("東京の請求書", "tokyo"), ("ﾋﾟ 支払い", "tokyo"), ("花名", "flower"), ("退款", "flower"),
        ("ВОЗВРАТ", "cyrillic"), ("деньги", "cyrillic"), ("فاتورة", "arabic"), ("فَاتُورَة", "arabic"),
        ("café", "accents"), ("CAFE\u0301", "accents"), ("cafe", "accents"), ("zürich", "accents"),
        ("resume", "accents"), ("facade", "accents"), ("🚀", "emoji"), ("✅", "emoji"), ("🇩🇪", "emoji"),
        ("หนี้", "thai"), ("refunds", "english"), ("ＲＥＦＵＮＤ", "english"), ("returned", "english"),
    ],
)  # fmt: skip
def test_replay_24_words_of_any_script_find_their_object(query, found):
    scored = score_all(ENGLISH.query_terms(query), ANALYSED, everything, WEIGHTS)
    assert cut(scored, 1)[0].key.record_id == found


@pytest.mark.parametrize("query", ["", "?!", "qwxzv", "🦑", "ヌヌ", "zzz 9999", "é\u0301\u0301"])
def test_replay_25_nonsense_finds_nothing(query):
    assert cut(score_all(ENGLISH.query_terms(query), ANALYSED, everything, WEIGHTS), 10) == []
