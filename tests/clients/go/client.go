// Talks to a running server through code generated from the .proto files, as any Go program would.
//
//	client ADDRESS [REQUESTS ANSWERS]
//	client load ADDRESS...
//
// REQUESTS is the encoding of the requests, ANSWERS the one that the server is expected to answer in: `identity` (the
// default) or `gzip`. Answers in gzip are accepted in any case. The server must have the built-in `echo` kind. Prints a
// line for each check; exits with 1 at the first that fails. For `load` see load.go.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"reflect"
	"strings"
	"sync"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	_ "google.golang.org/grpc/encoding/gzip" // Also makes the library accept answers in gzip.
	health "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/stats"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	remuda "remuda/v1"
)

const (
	callTimeout = 20 * time.Second
	largeBytes  = 1 << 20 // gzip reduces them to about a thousand.
)

// checks holds the clients that all checks use.
type checks struct {
	address, requests, answers string

	conn    *grpc.ClientConn
	workers remuda.WorkerPoolClient
	admin   remuda.PoolAdminClient
	health  health.HealthClient
}

func main() {
	arguments := os.Args[1:]
	switch {
	case len(arguments) > 1 && arguments[0] == "load":
		load(arguments[1:])
	case len(arguments) == 1:
		runChecks(arguments[0], "identity", "identity")
	case len(arguments) == 3 && isEncoding(arguments[1]) && isEncoding(arguments[2]):
		runChecks(arguments[0], arguments[1], arguments[2])
	default:
		fmt.Fprintln(os.Stderr, "usage: client ADDRESS [REQUESTS ANSWERS], encodings: identity, gzip\n       client load ADDRESS...")
		os.Exit(2)
	}
}

func isEncoding(name string) bool { return name == "identity" || name == "gzip" }

func runChecks(address, requests, answers string) {
	c := &checks{address: address, requests: requests, answers: answers}
	conn, err := c.dial()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	c.conn = conn
	c.workers, c.admin = remuda.NewWorkerPoolClient(conn), remuda.NewPoolAdminClient(conn)
	c.health = health.NewHealthClient(conn)
	list := c.list()
	for passed, check := range list {
		ctx, cancel := context.WithTimeout(context.Background(), callTimeout)
		err := check.run(ctx)
		cancel()
		if err != nil {
			fmt.Printf("FAILED %s: %v\n%d passed, 1 failed\n", check.what, err, passed)
			os.Exit(1)
		}
		fmt.Println("ok", check.what)
	}
	fmt.Printf("%d passed, 0 failed\n", len(list))
}

func (c *checks) dial(options ...grpc.DialOption) (*grpc.ClientConn, error) {
	options = append(options, grpc.WithInsecure(), grpc.WithNoProxy())
	if c.requests == "gzip" {
		options = append(options, grpc.WithDefaultCallOptions(grpc.UseCompressor("gzip")))
	}
	return grpc.Dial(c.address, options...)
}

type check struct {
	what string
	run  func(context.Context) error
}

func (c *checks) list() []check {
	return []check{
		{"health says serving", c.healthSaysServing},
		{"standard health says serving", c.standardHealthSaysServing},
		{"a submitted query is echoed", c.submittedQueryIsEchoed},
		{"messages are streamed in order and can be read again", c.messagesAreStreamedInOrder},
		{"submit is idempotent by id", c.submitIsIdempotent},
		{"execute submits and streams", c.executeSubmitsAndStreams},
		{"a reported error ends the query", c.reportedErrorEndsTheQuery},
		{"a long query can be cancelled", c.longQueryCanBeCancelled},
		{"a bad payload is refused by name", c.badPayloadIsRefused},
		{"an unknown query is not found", c.unknownQueryIsNotFound},
		{"large messages have the expected encoding", c.largeMessagesHaveTheExpectedEncoding},
	}
}

func (c *checks) healthSaysServing(ctx context.Context) error {
	answer, err := c.workers.Health(ctx, &remuda.HealthRequest{})
	if err != nil {
		return err
	}
	if !answer.Serving || len(answer.Reasons) > 0 || answer.Version == "" || answer.Lifecycle != "ready" {
		return fmt.Errorf("not serving: %v", answer)
	}
	for _, kind := range answer.Kinds {
		if kind.Kind == "echo" {
			return nil
		}
	}
	return fmt.Errorf("no echo kind: %v", answer)
}

func (c *checks) standardHealthSaysServing(ctx context.Context) error {
	answer, err := c.health.Check(ctx, &health.HealthCheckRequest{})
	if err != nil {
		return err
	}
	return equal(answer.Status, health.HealthCheckResponse_SERVING)
}

func (c *checks) submittedQueryIsEchoed(ctx context.Context) error {
	payload := `{"greeting": "grüß Gott", "list": [1, 2.5, null]}`
	accepted, err := c.submit(ctx, payload, "")
	if err != nil {
		return err
	}
	if accepted.QueryId == "" || accepted.Kind != "echo" || accepted.Existed {
		return fmt.Errorf("unexpected answer: %v", accepted)
	}
	events, err := c.events(ctx, accepted.QueryId, 0)
	if err != nil {
		return err
	}
	if err := equalContents(events, payload); err != nil {
		return err
	}
	if events[len(events)-1].GetComplete() == nil || events[0].Attempt != 1 {
		return fmt.Errorf("unexpected events: %v", events)
	}
	return c.hasState(ctx, accepted.QueryId, remuda.QueryState_QUERY_STATE_COMPLETE)
}

func (c *checks) messagesAreStreamedInOrder(ctx context.Context) error {
	events, err := c.submitAndRead(ctx, `{"stream": 5, "delay_ms": 20}`)
	if err != nil {
		return err
	}
	if err := equalStream(events.list, 5); err != nil {
		return err
	}
	again, err := c.events(ctx, events.queryID, 3)
	if err != nil {
		return err
	}
	for i, event := range again {
		if len(again) != len(events.list)-3 || !proto.Equal(event, events.list[3+i]) {
			return fmt.Errorf("read again: %v, before: %v", again, events.list)
		}
	}
	return nil
}

func (c *checks) submitIsIdempotent(ctx context.Context) error {
	first, err := c.submit(ctx, `{"stream": 1}`, "")
	if err != nil {
		return err
	}
	id := first.QueryId + "-again"
	for _, existed := range []bool{false, true} {
		answer, err := c.submit(ctx, `{"stream": 2}`, id)
		if err != nil {
			return err
		}
		if err := equal(answer.Existed, existed); err != nil {
			return err
		}
	}
	_, err = c.submit(ctx, `{"stream": 3}`, id)
	return refused(err, codes.AlreadyExists)
}

func (c *checks) executeSubmitsAndStreams(ctx context.Context) error {
	stream, err := c.workers.Execute(ctx, &remuda.ExecuteRequest{Query: echo(`{"stream": 2}`)})
	if err != nil {
		return err
	}
	first, err := stream.Recv()
	if err != nil {
		return err
	}
	if first.GetAccepted().GetKind() != "echo" {
		return fmt.Errorf("not accepted first: %v", first)
	}
	events, err := readAll(0, func() (*remuda.Event, error) {
		response, err := stream.Recv()
		return response.GetEvent(), err
	})
	if err != nil {
		return err
	}
	return equalStream(events, 2)
}

func (c *checks) reportedErrorEndsTheQuery(ctx context.Context) error {
	events, err := c.submitAndRead(ctx, `{"fail": "no such luck"}`)
	if err != nil {
		return err
	}
	if !strings.Contains(events.last().GetError().GetMessage(), "no such luck") {
		return fmt.Errorf("unexpected end: %v", events.last())
	}
	return nil
}

func (c *checks) longQueryCanBeCancelled(ctx context.Context) error {
	accepted, err := c.submit(ctx, `{"sleep_ms": 60000}`, "")
	if err != nil {
		return err
	}
	const reason = "changed my mind"
	answer, err := c.workers.Cancel(ctx, &remuda.CancelRequest{QueryId: accepted.QueryId, Reason: reason})
	if err != nil {
		return err
	}
	if answer.Found != remuda.CancelFound_CANCEL_FOUND_QUEUED && answer.Found != remuda.CancelFound_CANCEL_FOUND_RUNNING {
		return fmt.Errorf("unexpected answer: %v", answer)
	}
	events, err := c.events(ctx, accepted.QueryId, 0)
	if err != nil {
		return err
	}
	if err := equal(events[len(events)-1].GetCancelled().GetReason(), reason); err != nil {
		return err
	}
	return c.hasState(ctx, accepted.QueryId, remuda.QueryState_QUERY_STATE_CANCELLED)
}

func (c *checks) badPayloadIsRefused(ctx context.Context) error {
	_, err := c.submit(ctx, `{"unfinished":`, "")
	return refused(err, codes.InvalidArgument, "query.payload")
}

func (c *checks) unknownQueryIsNotFound(ctx context.Context) error {
	_, err := c.events(ctx, "no-such-query", 0)
	return refused(err, codes.NotFound)
}

func (c *checks) largeMessagesHaveTheExpectedEncoding(ctx context.Context) error {
	wire := &wireStats{}
	conn, err := c.dial(grpc.WithStatsHandler(wire))
	if err != nil {
		return err
	}
	defer conn.Close()
	measured := checks{workers: remuda.NewWorkerPoolClient(conn)}
	payload := fmt.Sprintf(`{"pad":"%s"}`, strings.Repeat("x", largeBytes))
	accepted, err := measured.submit(ctx, payload, "")
	if err != nil {
		return err
	}
	sent := wire.reset().sent
	events, err := measured.events(ctx, accepted.QueryId, 0)
	if err != nil {
		return err
	}
	if events[0].GetMessage().GetContent() != payload {
		return errors.New("another message came back")
	}
	received := wire.reset()
	if err := equal(encodingOf(sent), c.requests); err != nil {
		return fmt.Errorf("request of %d bytes: %w", sent, err)
	}
	if err := equal(encodingOf(received.received), c.answers); err != nil {
		return fmt.Errorf("answer of %d bytes: %w", received.received, err)
	}
	if named := received.encoding == "gzip"; named != (c.answers == "gzip") {
		return fmt.Errorf("grpc-encoding of the answer: %q, expected %s", received.encoding, c.answers)
	}
	return nil
}

func echo(payload string) *remuda.Query { return &remuda.Query{Kind: "echo", Payload: payload} }

func (c *checks) submit(ctx context.Context, payload, id string) (*remuda.SubmitResponse, error) {
	return c.workers.Submit(ctx, &remuda.SubmitRequest{QueryId: id, Query: echo(payload)})
}

// events reads a query's events to its end.
func (c *checks) events(ctx context.Context, id string, from uint64) ([]*remuda.Event, error) {
	stream, err := c.workers.StreamResults(ctx, &remuda.StreamResultsRequest{QueryId: id, FromSequence: from})
	if err != nil {
		return nil, err
	}
	return readAll(from, func() (*remuda.Event, error) {
		response, err := stream.Recv()
		return response.GetEvent(), err
	})
}

type queryEvents struct {
	queryID string
	list    []*remuda.Event
}

func (e queryEvents) last() *remuda.Event { return e.list[len(e.list)-1] }

func (c *checks) submitAndRead(ctx context.Context, payload string) (queryEvents, error) {
	accepted, err := c.submit(ctx, payload, "")
	if err != nil {
		return queryEvents{}, err
	}
	events, err := c.events(ctx, accepted.QueryId, 0)
	return queryEvents{accepted.QueryId, events}, err
}

// readAll reads a stream to its end: each event must follow on the one before, and only the last may be final.
func readAll(first uint64, next func() (*remuda.Event, error)) ([]*remuda.Event, error) {
	var events []*remuda.Event
	for {
		event, err := next()
		switch {
		case err == io.EOF && len(events) > 0 && isFinal(events[len(events)-1]):
			return events, nil
		case err == io.EOF:
			return nil, fmt.Errorf("the stream ended before the final event: %v", events)
		case err != nil:
			return nil, err
		case len(events) > 0 && isFinal(events[len(events)-1]):
			return nil, fmt.Errorf("an event after the final one: %v", event)
		case event.GetSequence() != first+uint64(len(events)) || event.GetAt() == nil:
			return nil, fmt.Errorf("unexpected event after %v: %v", events, event)
		}
		events = append(events, event)
	}
}

func isFinal(event *remuda.Event) bool {
	switch event.Body.(type) {
	case *remuda.Event_Complete, *remuda.Event_Error, *remuda.Event_Cancelled, *remuda.Event_Rejected:
		return true
	}
	return false
}

func (c *checks) hasState(ctx context.Context, id string, state remuda.QueryState) error {
	answer, err := c.admin.GetQuery(ctx, &remuda.GetQueryRequest{QueryId: id})
	if err != nil {
		return err
	}
	return equal(answer.Query.State, state)
}

// equalStream compares events with those of the payload {"stream": count}.
func equalStream(events []*remuda.Event, count int) error {
	var contents []string
	for n := 1; n <= count; n++ {
		contents = append(contents, fmt.Sprintf(`{"n": %d}`, n))
	}
	if err := equalContents(events, contents...); err != nil {
		return err
	}
	return equalJSON(events[len(events)-1].GetComplete().GetResult(), fmt.Sprintf(`{"streamed": %d}`, count))
}

// equalContents compares the messages before the final event.
func equalContents(events []*remuda.Event, contents ...string) error {
	if len(events) != len(contents)+1 {
		return fmt.Errorf("expected %d messages and the final event: %v", len(contents), events)
	}
	for i, content := range contents {
		if err := equalJSON(events[i].GetMessage().GetContent(), content); err != nil {
			return err
		}
	}
	return nil
}

func equalJSON(actual, expected string) error {
	var values [2]interface{}
	for i, text := range []string{actual, expected} {
		if err := json.Unmarshal([]byte(text), &values[i]); err != nil {
			return fmt.Errorf("%q: %w", text, err)
		}
	}
	return equal(values[0], values[1])
}

func equal(actual, expected interface{}) error {
	if !reflect.DeepEqual(actual, expected) {
		return fmt.Errorf("expected %v, got %v", expected, actual)
	}
	return nil
}

// refused checks that a call failed with this code, by Remuda's own account, and for these fields of the request.
func refused(err error, code codes.Code, fields ...string) error {
	if status.Code(err) != code {
		return fmt.Errorf("expected %v, got %v", code, err)
	}
	domain := ""
	var violated []string
	for _, detail := range status.Convert(err).Details() {
		switch detail := detail.(type) {
		case *errdetails.ErrorInfo:
			domain = detail.Domain
		case *errdetails.BadRequest:
			for _, violation := range detail.FieldViolations {
				violated = append(violated, violation.Field)
			}
		}
	}
	if err := equal(violated, fields); err != nil {
		return err
	}
	return equal(domain, "remuda")
}

func encodingOf(wireBytes int) string {
	if wireBytes < largeBytes/10 {
		return "gzip"
	}
	return "identity"
}

// wireStats counts the bytes of messages as they are on the wire, and notes the encoding that the answers name.
type wireStats struct {
	mutex  sync.Mutex
	counts wireCounts
}

type wireCounts struct {
	sent, received int
	encoding       string
}

// reset returns the counts since the last call.
func (w *wireStats) reset() wireCounts {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	counts := w.counts
	w.counts = wireCounts{}
	return counts
}

func (w *wireStats) HandleRPC(_ context.Context, event stats.RPCStats) {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	switch event := event.(type) {
	case *stats.OutPayload:
		w.counts.sent += event.WireLength
	case *stats.InPayload:
		w.counts.received += event.WireLength
	case *stats.InHeader:
		w.counts.encoding = event.Compression
	}
}

func (*wireStats) TagRPC(ctx context.Context, _ *stats.RPCTagInfo) context.Context   { return ctx }
func (*wireStats) TagConn(ctx context.Context, _ *stats.ConnTagInfo) context.Context { return ctx }
func (*wireStats) HandleConn(context.Context, stats.ConnStats)                       {}
