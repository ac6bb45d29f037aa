package coord_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net/url"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/goleak"
	"go.uber.org/zap"
	"google.golang.org/grpc"

	"github.com/tidemarkdb/tidemark/kv/coord"
)

// service is a coordination service that the tests run against.
type service interface {
	Endpoints() []string
	Close() error
}

// against says which service the tests run against. What is tested cannot tell.
var against = flag.String("coord.service", "tidemark", "the service: tidemark or etcd")

// endpoints are those of the service that all tests share. Each uses names of its own.
var endpoints []string

func TestMain(m *testing.M) {
	flag.Parse()
	service, err := startService(context.Background(), 1)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	endpoints = service.Endpoints()
	code := m.Run()
	if err := errors.Join(service.Close(), goleak.Find()); err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = max(code, 1)
	}
	os.Exit(code)
}

// limit is how long a test waits for what has to happen.
const limit = 30 * time.Second

// begun counts the tests, so that one that runs again has other keys.
var begun atomic.Int64

// world is a test with its own names.
type world struct {
	*testing.T
	ctx context.Context
	// prefix is before all its keys.
	prefix string
	// admin is a client that nothing happens to.
	admin *coord.Client
}

// begin begins a test, which leaves no goroutine behind. A service in this process has its own,
// which come and go; then they are looked for when that has ended.
func begin(t *testing.T) *world {
	t.Helper()
	if *against == "etcd" {
		leaks := goleak.IgnoreCurrent()
		t.Cleanup(func() { goleak.VerifyNone(t, leaks) })
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*limit)
	t.Cleanup(cancel)
	w := &world{T: t, ctx: ctx, prefix: fmt.Sprintf("%s/%d/", url.PathEscape(t.Name()), begun.Add(1))}
	w.admin = w.client()
	return w
}

// client is a client of its own; it is closed when the test ends.
func (w *world) client(options ...coord.Option) *coord.Client {
	w.Helper()
	return w.clientAt(endpoints, options...)
}

func (w *world) clientAt(endpoints []string, options ...coord.Option) *coord.Client {
	w.Helper()
	c, err := coord.Connect(w.ctx, endpoints,
		append([]coord.Option{coord.Prefix(w.prefix)}, options...)...)
	w.must(err)
	w.Cleanup(func() { c.Close() })
	return c
}

// intercepted is a client whose unary calls go through a function.
func (w *world) intercepted(f grpc.UnaryClientInterceptor,
	options ...coord.Option) *coord.Client {
	w.Helper()
	etcd, err := clientv3.New(clientv3.Config{Endpoints: endpoints, Logger: zap.NewNop(),
		DialOptions: []grpc.DialOption{grpc.WithChainUnaryInterceptor(f)}})
	w.must(err)
	w.Cleanup(func() { etcd.Close() })
	return coord.New(etcd, append(options, coord.Prefix(w.prefix))...)
}

// session is a session of a client; it is closed when the test ends.
func (w *world) session(c *coord.Client, options ...coord.SessionOption) *coord.Session {
	w.Helper()
	s, err := c.NewSession(w.ctx, options...)
	w.must(err)
	w.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		s.Close(ctx) // of a client that is closed, or cut off, it fails
	})
	return s
}

func (w *world) must(err error) {
	w.Helper()
	if err != nil {
		w.Fatal(err)
	}
}

// is fails the test unless an error is of all these kinds.
func (w *world) is(err error, kinds ...error) {
	w.Helper()
	for _, kind := range kinds {
		if !errors.Is(err, kind) {
			w.Fatalf("%v; want an error of the kind %q", err, kind)
		}
	}
}

// until waits until a condition is true.
func (w *world) until(what string, condition func() bool) {
	w.Helper()
	deadline := time.NewTimer(limit)
	defer deadline.Stop()
	ticker := time.NewTicker(5 * time.Millisecond)
	defer ticker.Stop()
	for !condition() {
		select {
		case <-ticker.C:
		case <-deadline.C:
			w.Fatalf("not within %s: %s", limit, what)
		}
	}
}

// done waits until a channel is closed.
func (w *world) done(what string, c <-chan struct{}) {
	w.Helper()
	deadline := time.NewTimer(limit)
	defer deadline.Stop()
	select {
	case <-c:
	case <-deadline.C:
		w.Fatalf("not within %s: %s", limit, what)
	}
}

// keys are the keys of the test that contain a text.
func (w *world) keys(containing string) (found []string) {
	w.Helper()
	r, err := w.admin.Etcd().Get(w.ctx, w.prefix, clientv3.WithPrefix(), clientv3.WithKeysOnly())
	w.must(err)
	for _, kv := range r.Kvs {
		if strings.Contains(string(kv.Key), containing) {
			found = append(found, string(kv.Key))
		}
	}
	return found
}

// compact removes the history of the service.
func (w *world) compact() {
	w.Helper()
	r, err := w.admin.Etcd().Get(w.ctx, "x")
	w.must(err)
	_, err = w.admin.Etcd().Compact(w.ctx, r.Header.Revision)
	w.must(err)
}

// result is what a call in a goroutine returned.
type result[T any] struct {
	value T
	err   error
}

// start calls a function in a goroutine.
func start[T any](f func() (T, error)) <-chan result[T] {
	c := make(chan result[T], 1)
	go func() {
		v, err := f()
		c <- result[T]{v, err}
	}()
	return c
}

// wait waits for the result of start.
func wait[T any](w *world, what string, c <-chan result[T]) (T, error) {
	w.Helper()
	deadline := time.NewTimer(limit)
	defer deadline.Stop()
	select {
	case r := <-c:
		return r.value, r.err
	case <-deadline.C:
		w.Fatalf("not within %s: %s", limit, what)
		panic("not reached")
	}
}
