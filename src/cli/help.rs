//! What stands below the options in each help: examples, exit codes, variables.

/// A macro, because only literals can be put together to constants.
macro_rules! quick_start {
    () => {
        "\
Quick start:
  remuda serve                              start a server with the built-in echo worker
  remuda run '{\"hello\":\"world\"}'            in another terminal: run a query
  remuda run '{\"stream\":5,\"delay_ms\":500}'  see messages come one by one
  remuda health                             see how the pool does
  remuda config example > remuda.toml       begin with workers of your own

"
    };
}

pub(super) const QUICK_START: &str = concat!(
    quick_start!(),
    "\
remuda COMMAND --help shows examples of each command.
remuda --help tells of exit codes and variables too."
);

pub(super) const WHOLE: &str = concat!(
    quick_start!(),
    "\
Data goes to standard output, everything else to standard error.

Exit codes:
  0  done; the query is complete; the pool is serving
  1  failed: the query ended in error, the pool is not serving, there is no such query, worker, kind
     or dead letter, or it is in no state for what was asked
  2  usage: wrong arguments, a payload that is not JSON, a mistake in the configuration
  3  the query was cancelled (run, stream)
  4  the query was rejected: the queue is full, the server is stopping, or no worker took it in time
     (run, stream, submit, dead requeue)
  5  the server cannot be reached, or the connection to it was lost

Variables:
  REMUDA_ENDPOINT       the server to talk to, as --endpoint
  REMUDA_TOKEN_FILE     the file with the token to send, as --token-file
  REMUDA_TLS_CA, REMUDA_TLS_CERT, REMUDA_TLS_KEY, REMUDA_TLS_NAME
                        for https, as --tls-ca, --tls-cert, --tls-key, --tls-name
  REMUDA_CONFIG         the configuration file of serve, as --config
  REMUDA_LOG            what serve logs, as --log
  REMUDA_LOG_FORMAT     how serve logs, as --log-format
  REMUDA__SECTION__KEY  overrides a key of the configuration, as REMUDA__SERVER__LISTEN
  NO_COLOR              if set, no colours even on a terminal"
);

pub(super) const SERVE: &str = "\
Examples:
  remuda serve                                   ./remuda.toml, or else the built-in echo worker
  remuda serve --config /etc/remuda.toml         your own workers
  remuda serve --listen /run/remuda.sock         for clients with --endpoint unix:/run/remuda.sock
  remuda serve --listen 0.0.0.0:50051 --http off
  REMUDA__POOL__MAX_WORKERS=4 remuda serve       any key of the configuration, as a variable

It runs until SIGTERM or Ctrl-C, and lets running queries end; a second one ends it at once.
The flags count more than the variables, and those more than the file.
Exit codes: 0 stopped and nothing was lost, 1 failed, 2 a mistake in the configuration.";

pub(super) const RUN: &str = "\
Standard output gets each message of the worker as a line of JSON, and the result as the last one.
With --events each line is a whole event:
  {\"query_id\":\"...\",\"sequence\":0,\"attempt\":1,\"at\":\"...\",\"type\":\"message\",\"content\":...}
Errors go to standard error, and so do notes on attempts that failed and are followed by another.
Ctrl-C cancels the query.

A query that stops half way may have been carried out in part: --retry is for those that may run twice.

Examples:
  remuda run '{\"hello\":\"world\"}'
  remuda run --kind embed --timeout 30s @document.json
  jq -n '{stream: 3}' | remuda run -
  remuda run --priority 0 --owner alice --key repo-7 '{\"ask\":\"why?\"}'
  remuda run --capability vision --reject-if-busy @photo.json    now, or not at all
  remuda run --retry=2 @document.json                    two more attempts if workers die
  remuda run --on-disconnect keep --id job-7 @job.json   it goes on if the connection is lost

Exit codes: 0 complete, 1 error, 2 usage, 3 cancelled, 4 rejected, 5 server unreachable.";

pub(super) const SUBMIT: &str = "\
Examples:
  id=$(remuda submit '{\"stream\":100,\"delay_ms\":100}')
  remuda stream \"$id\"
  remuda cancel \"$id\"
  remuda submit --id job-7 @job.json              safe to repeat: the same id and query is not run twice
  remuda submit --no-retry @payment.json
  remuda submit --on-disconnect 1m @job.json      once read, it ends if nobody reads on for a minute

Exit codes: 0 accepted, 1 failed, 2 usage, 4 rejected, 5 server unreachable.";

pub(super) const STREAM: &str = "\
Prints what the query has given so far and goes on to its end; a query that has ended can still be
read for a while. The lines are those of run. Ctrl-C ends the reading, not the query.

Examples:
  remuda stream 0190f3c2-...
  remuda stream job-7 --from 500 --events

Exit codes: 0 complete, 1 error, 2 usage, 3 cancelled, 4 rejected, 5 server unreachable.";

pub(super) const CANCEL: &str = "\
Does not wait for the worker; remuda stream ID does. May be repeated, and is no error for a query
that has ended.

Examples:
  remuda cancel job-7
  remuda cancel job-7 --reason 'took the wrong input'

Exit codes: 0 done, 1 no such query, 2 usage, 5 server unreachable.";

pub(super) const HEALTH: &str = "\
Examples:
  remuda health
  remuda health --kind embed --json
  HEALTHCHECK CMD [\"remuda\", \"health\", \"--quiet\"]     in a Dockerfile

Serving means that a query could start now; with --kind, one of that kind. Where the server listens
on another address, REMUDA_ENDPOINT or --endpoint says so.

Exit codes: 0 serving, 1 not serving or no such kind, 2 usage, 5 server unreachable or silent for
longer than --timeout.";

pub(super) const WORKERS: &str = "\
Examples:
  remuda workers
  remuda workers --kind embed
  remuda workers 7                       its use of memory and processor, its history, and its death
                                         certificate if it has ended
  remuda workers --json | jq 'select(.state == \"processing\")'

Exit codes: 0 done, 1 no such worker, 2 usage, 5 server unreachable.";

pub(super) const QUERIES: &str = "\
Examples:
  remuda queries
  remuda queries --state pending --state processing --kind embed
  remuda queries job-7
  remuda queries --json | jq -r 'select(.owner == \"alice\").query_id'

Exit codes: 0 done, 1 no such query, 2 usage, 5 server unreachable.";

pub(super) const DEAD_LIST: &str = "\
A query becomes a dead letter when it timed out, when its workers died or when they reported a
retryable error, and it has no attempt left. It is kept longer than other queries (dead_letters in
the configuration). REASON is how the last attempt failed.

Examples:
  remuda dead list
  remuda dead list --kind embed --limit 20
  remuda dead list --json | jq -r 'select(.failures[-1].error.reason == \"timed_out\").query.query_id'

Exit codes: 0 done, 1 no such kind, 2 usage, 5 server unreachable.";

pub(super) const DEAD_SHOW: &str = "\
Examples:
  remuda dead show job-7
  remuda dead show job-7 --json | jq .payload > payload.json     to try it by hand

Exit codes: 0 done, 1 no such dead letter, 2 usage, 5 server unreachable.";

pub(super) const DEAD_REQUEUE: &str = "\
Prints the old and the new id of each, as `old -> new`. The old one becomes a plain ended query,
and remuda queries shows for both what the other one is.

Examples:
  remuda dead requeue job-7 job-8
  remuda dead requeue --all --kind embed         once embed is repaired
  remuda stream \"$(remuda dead requeue job-7 --json | jq -r .new_query_id)\"

Exit codes: 0 done, 1 no such dead letter (the others are requeued), 2 usage,
4 rejected: the queue is full (remuda dead list tells which are left), 5 server unreachable.";

pub(super) const DEAD_PURGE: &str = "\
Forgets the letters for good, with their payloads and events.

Examples:
  remuda dead purge job-7
  remuda dead purge --all --kind embed
  remuda dead list --json | jq -r 'select(.query.owner == \"alice\").query.query_id' | xargs remuda dead purge

Exit codes: 0 done, 1 no such dead letter (the others are purged), 2 usage, 5 server unreachable.";

pub(super) const SCALE: &str = "\
Sets how many workers the kind shall have, between its min and max, and does not wait for them.
By its load the kind may still grow, and shrink again, but not below that number. Those that are too
many go when they are idle, or after their query. A step ends at the kind's min or max.

Examples:
  remuda scale embed 6
  remuda scale embed +2                  two more than now
  remuda scale embed -1                  one fewer

Exit codes: 0 done, 1 no such kind, 2 usage, or more or fewer than the kind may have,
5 server unreachable.";

pub(super) const RESTART: &str = "\
Starts a new worker first and stops the old one when the new one is ready, if there is room for both.
A worker that is bound to a key is stopped first; its key gets another when a query wants one. A query
that the old one runs may end before. It does not wait for any of that; remuda events shows it.

Examples:
  remuda restart 7
  remuda workers --kind embed --json | jq .worker_id | xargs -n 1 remuda restart     all of a kind

Exit codes: 0 done, 1 no such worker, or it is being stopped, 2 usage, 5 server unreachable.";

pub(super) const EVICT: &str = "\
Stops a worker that runs no query, if its kind has more workers than its min.

Examples:
  remuda evict 7

Exit codes: 0 done, 1 no such worker, it is busy or its kind needs it, 2 usage, 5 server unreachable.";

pub(super) const DRAIN: &str = "\
Without a worker, the pool takes no new queries; those that were accepted run. The server goes on,
and remuda resume lets queries in again. With a worker, it gets no more queries, ends the one it
runs and lives on, for you to look at.

Examples:
  remuda drain --reason 'the disk is being replaced'
  remuda drain 7                         attach a debugger, then: remuda resume 7

Exit codes: 0 done, 1 no such worker, or it is being stopped, 2 usage, 5 server unreachable.";

pub(super) const RESUME: &str = "\
Examples:
  remuda resume                          the pool takes queries again
  remuda resume 7                        worker 7 gets queries again

Exit codes: 0 done, 1 no such worker, or the server is stopping, 2 usage, 5 server unreachable.";

pub(super) const RELOAD: &str = "\
Makes the server read its configuration file again, as SIGHUP does, and prints each key that has
changed, its old and new value, and what comes of it. If the file has a mistake, nothing is changed.

Examples:
  remuda reload --dry-run                what would change
  remuda reload
  remuda reload --json | jq '.changes[] | select(.effect == \"needs_restart\").path'

Exit codes: 0 done, 1 the server has no configuration file, 2 usage, or a mistake in the file,
5 server unreachable.";

pub(super) const EVENTS: &str = "\
Prints a line for each event from now on: its time, name, kind, worker and reason. Names:
  worker:  starting loading ready busy idle stopping crashed dead ended evicted
  kind:    circuit
  pool:    scaled reloaded ready draining drained resumed shut_down
Who reads too slowly is told with watch:missed how many events are gone. Ctrl-C ends it.

Examples:
  remuda events
  remuda events --kind embed --name worker:crashed --name kind:
  remuda events --json --name worker:ended | jq -r .certificate.summary

Exit codes: 0 the server has stopped, or you have, 1 no such kind, 2 usage, 5 server unreachable.";

pub(super) const BENCH: &str = "\
Runs queries for an echo worker, so many at a time, and tells what became of them and how long they
took. The server needs a kind that runs: remuda worker echo. --spawn starts such a server, with
retries on, and stops it. Rounds of different things take turns, so that other load on the machine
does harm to all alike; counts are sums, rates and percentiles are medians of the rounds. Ctrl-C ends
the run and prints what there is.

With --json one object; what was not measured is null:
  settings      endpoint, concurrency, connections, messages, size, payload_size, rounds,
                duration_seconds or count, warmup_seconds, timeout_seconds, chaos_seconds
  interrupted   whether it was ended before its time
  remuda        queries, completed, failed, hung, messages, seconds, queries_per_second,
                messages_per_second; latency_us and first_message_us, each with p50, p90, p99, p99.9
                and max; errors: for each gRPC status its code, count and an example
  baseline      the same of the bare server (--compare)
  ratio         remuda / baseline: queries_per_second, messages_per_second, latency_p50
  single        with --concurrency 1: remuda_p50_us, unary_p50_us of a call to the bare server,
                raw_p50_us of a query to a worker on a socket; ratio: the first by the sum of the others
  chaos         killed, failed, hung, rate_kept beside the undisturbed rounds; figures: as remuda

Examples:
  remuda bench                                          10 s, 64 queries at a time
  remuda bench --spawn 8 --compare                      a server of its own beside bare gRPC
  remuda bench --spawn 8 --compare -c 16 -m 1000        long streams
  remuda bench --spawn 8 --compare -c 1                 what a query takes by itself
  remuda bench --spawn 8 --chaos --rounds 1             a worker killed each second for 10 s
  remuda bench --count 10000 --json | jq .remuda.queries_per_second
  remuda bench --kind embed --payload @document.json    your own worker

Exit codes: 0 every query completed, 1 some did not, 2 usage, 5 server unreachable.";

pub(super) const BASELINE: &str = "\
A bare gRPC server that answers Execute and Submit as a pool of echo workers would, with no pool and no
worker: what no pool can be faster than. It prints its address and runs until SIGTERM or Ctrl-C.

Examples:
  remuda bench baseline --listen 127.0.0.1:50052
  remuda --endpoint 127.0.0.1:50052 bench               in another terminal

Exit codes: 0 stopped, 1 cannot listen there, 2 usage.";

pub(super) const CONFIG_CHECK: &str = "\
Checks what serve --config FILE would use, with the REMUDA__ variables that are set. Certificates and tokens are read as
serve would read them, so run it as the same user. Warns of what serve would warn of.

Examples:
  remuda config check remuda.toml

Exit codes: 0 no mistake, 1 serve would refuse to start, 2 mistakes, each told with its place.";

pub(super) const CONFIG_SHOW: &str = "\
The output is a configuration file again. It holds the workers' variables in full, secrets and all.

Examples:
  remuda config show
  remuda config show --config /etc/remuda.toml | grep timeout

Exit codes: 0 done, 2 a mistake in the configuration.";

pub(super) const CONFIG_EXAMPLE: &str = "\
Examples:
  remuda config example > remuda.toml";

pub(super) const COMPLETIONS: &str = "\
Examples:
  source <(remuda completions bash)
  remuda completions zsh > ~/.zfunc/_remuda
  remuda completions fish > ~/.config/fish/completions/remuda.fish";

pub(super) const ECHO: &str = "\
The server starts it; serve does so by itself when there is no configuration:
  [kinds.echo]
  command = [\"remuda\", \"worker\", \"echo\"]

What a payload can ask for; several at once happen in this order:
  {\"session\":\"abc\"}            tell the session's id
  {\"stream\":3,\"delay_ms\":100}  send the messages {\"n\":1} to {\"n\":3}, with a delay between them
  {\"stream\":3,\"size\":200}      send three messages of 200 bytes each instead, many in one write
  {\"sleep_ms\":500}             do nothing for a while
  {\"fail\":\"no luck\"}           report an error; \"code\":\"E7\" and \"retryable\":true are passed on
  {\"crash\":3}                  exit with code 3, or 1 for true, in the middle of the query
Anything else comes back: once as a message, and once as the result {\"echo\":...}.

Examples:
  remuda run '{\"stream\":3,\"delay_ms\":100}'
  remuda run '{\"stream\":2,\"crash\":7}'";
