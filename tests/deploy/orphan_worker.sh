#!/bin/sh
# A worker on stdio, in what a slim image has, that leaves an orphan at every query: a process in a session of its own,
# whose parent is gone at once, and which ends a second later. With "exit" in the payload it then ends itself.
echo '{"type":"ready","name":"orphan"}'
while read -r line; do
    case $line in
        *'"type":"query"'*)
            id=$(echo "$line" | sed 's/.*"requestId":"\([^"]*\)".*/\1/')
            (setsid sleep 1 >/dev/null 2>&1 </dev/null &)
            case $line in *'"exit"'*) exit 3 ;; esac
            echo "{\"type\":\"complete\",\"requestId\":\"$id\",\"result\":\"an orphan was left\"}"
            ;;
        *'"type":"health_check"'*) echo '{"type":"health_ok","uptime":1,"queriesProcessed":1}' ;;
        *'"type":"shutdown"'*) echo '{"type":"shutdown_ack"}'; exit 0 ;;
    esac
done
