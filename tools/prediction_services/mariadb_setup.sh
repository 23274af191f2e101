# Gives MariaDB an empty database: the first time it is made, later it is copied.
set -e
cd ../../build
rm -rf mariadb
test -d mariadb.empty || mariadb-install-db --no-defaults --user=root --datadir="$PWD/mariadb.empty" --auth-root-authentication-method=normal >/dev/null
cp -a mariadb.empty mariadb
mkdir -p mariadb/sbtest
