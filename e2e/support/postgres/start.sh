# Begins with an empty cluster each time, and runs the SQL under /docker-entrypoint-initdb.d in it. POSTGRES_PASSWORD is that of the role postgres,
# as with the image that registries call postgres.
set -eu
rm -rf "$PGDATA"
echo "$POSTGRES_PASSWORD" > /tmp/password
initdb --no-sync --encoding=UTF8 --locale=C --auth-local=trust --auth-host=scram-sha-256 -U postgres --pwfile=/tmp/password > /dev/null
settings="-c fsync=off -c unix_socket_directories=/tmp -c timezone=UTC"
echo "host all all all scram-sha-256" >> "$PGDATA/pg_hba.conf"
pg_ctl -w -l /tmp/log -o "$settings -c listen_addresses=''" start > /dev/null
for file in /docker-entrypoint-initdb.d/*.sql; do
  [ -e "$file" ] && psql -q -v ON_ERROR_STOP=1 -h /tmp -U postgres -f "$file" > /dev/null
done
pg_ctl -w stop > /dev/null
exec postgres $settings -c "listen_addresses=*"
