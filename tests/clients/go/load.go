package main

import (
	"context"
	"fmt"
	"io"
	"math/rand"
	"os"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/resolver"
	"google.golang.org/grpc/resolver/manual"
	"google.golang.org/grpc/status"

	remuda "remuda/v1"
)

const (
	callers      = 16
	failurePause = 20 * time.Millisecond // Keeps callers that only fail from spinning.
)

// load calls the replicas in turn until its standard input ends; ../replicas.py says what it prints.
func load(addresses []string) {
	rand.Seed(time.Now().UnixNano())
	conn, err := dialReplicas(addresses)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	workers := remuda.NewWorkerPoolClient(conn)
	stop := make(chan struct{})
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		close(stop)
	}()
	var running sync.WaitGroup
	for caller := 0; caller < callers; caller++ {
		running.Add(1)
		go func() {
			defer running.Done()
			callUntil(stop, workers)
		}()
	}
	running.Wait()
}

// dialReplicas opens a channel with the round_robin policy and no retry policy; the library's transparent retries stay on.
func dialReplicas(addresses []string) (*grpc.ClientConn, error) {
	replicas := manual.NewBuilderWithScheme("replicas")
	var state resolver.State
	for _, address := range addresses {
		state.Addresses = append(state.Addresses, resolver.Address{Addr: address})
	}
	replicas.InitialState(state)
	reconnect := backoff.Config{BaseDelay: 100 * time.Millisecond, Multiplier: 1.5, MaxDelay: 500 * time.Millisecond}
	// The path becomes the authority, which must not be empty.
	return grpc.Dial("replicas:///localhost", grpc.WithResolvers(replicas), grpc.WithInsecure(), grpc.WithDisableRetry(),
		grpc.WithDefaultServiceConfig(`{"loadBalancingConfig": [{"round_robin": {}}]}`),
		grpc.WithConnectParams(grpc.ConnectParams{Backoff: reconnect, MinConnectTimeout: time.Second}))
}

func callUntil(stop chan struct{}, workers remuda.WorkerPoolClient) {
	for {
		select {
		case <-stop:
			return
		default:
		}
		method, call := "Submit", submitOnce
		if rand.Intn(2) == 0 {
			method, call = "Execute", executeOnce
		}
		ctx, cancel := context.WithTimeout(context.Background(), callTimeout)
		kind, err := call(ctx, workers)
		cancel()
		if err != nil {
			kind = strings.Join(strings.Fields(status.Convert(err).Message()), " ")
		}
		// A line is one write, so lines of several callers do not mix.
		fmt.Printf("%s\t%d\t%s\n", method, status.Code(err), kind)
		if err != nil {
			time.Sleep(failurePause)
		}
	}
}

// submitOnce returns the kind that was chosen, which names the replica.
func submitOnce(ctx context.Context, workers remuda.WorkerPoolClient) (string, error) {
	query := &remuda.Query{Payload: fmt.Sprintf(`{"sleep_ms": %d}`, 2+rand.Intn(9))}
	answer, err := workers.Submit(ctx, &remuda.SubmitRequest{Query: query})
	return answer.GetKind(), err
}

func executeOnce(ctx context.Context, workers remuda.WorkerPoolClient) (string, error) {
	payload := fmt.Sprintf(`{"sleep_ms": %d}`, 2+rand.Intn(199))
	if rand.Intn(2) == 0 {
		payload = fmt.Sprintf(`{"stream": 5, "delay_ms": %d}`, 1+rand.Intn(40))
	}
	stream, err := workers.Execute(ctx, &remuda.ExecuteRequest{Query: &remuda.Query{Payload: payload}})
	if err != nil {
		return "", err
	}
	first, err := stream.Recv()
	if err != nil {
		return "", err
	}
	events, err := readAll(0, func() (*remuda.Event, error) {
		response, err := stream.Recv()
		return response.GetEvent(), err
	})
	if err == nil && events[len(events)-1].GetComplete() == nil {
		err = status.Errorf(codes.Unknown, "not complete: %v", events[len(events)-1])
	}
	return first.GetAccepted().GetKind(), err
}
