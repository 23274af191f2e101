# Runs sysbench's OLTP load: mariadb_load.sh prepare|run OPTIONS...
action=$1
shift
exec sysbench oltp_read_write --db-driver=mysql --mysql-host=127.0.0.1 --mysql-port=27630 --mysql-user=root \
    --mysql-db=sbtest --tables=4 --table-size=5000 --time=0 "$@" "$action"
