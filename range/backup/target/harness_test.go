package target

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/johannesboyne/gofakes3"
	"github.com/johannesboyne/gofakes3/backend/s3mem"
	"go.uber.org/goleak"

	"github.com/tidemarkdb/tidemark/rpc/memnet"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fault is what a server does with one request.
type fault string

const (
	none fault = ""
	// cutBefore cuts the connection without a look at the request.
	cutBefore fault = "cut before"
	// cutWithin cuts the connection in the middle of the content of the request.
	cutWithin fault = "cut within"
	// cutAfter carries the request out, and cuts the connection instead of an answer.
	cutAfter fault = "cut after"
	// failAfter carries the request out, and answers with an internal error.
	failAfter fault = "fail after"
	// truncate cuts the connection in the middle of the answer's content.
	truncate fault = "truncate"
	// stall does not answer until the client has gone.
	stall fault = "stall"
	// slow takes 20 seconds, which is less than the stall timeout.
	slow fault = "slow"
	// unconditional carries the request out without its condition.
	unconditional fault = "unconditional"
	// proxy answers as a proxy does whose server is down, without XML.
	proxy fault = "proxy"
)

// answer is a fault: an error of S3 with its status.
func answer(status int, code string) fault {
	return fault(fmt.Sprintf("answer %d %s", status, code))
}

// s3Server is an S3 server in memory that can be told to do wrong.
type s3Server struct {
	handler http.Handler
	dial    dialer

	mu       sync.Mutex
	faults   []fault
	always   fault
	requests []string
}

// startS3 starts a server with the bucket "bucket". It ends with the test.
func startS3(t *testing.T, options ...gofakes3.Option) *s3Server {
	t.Helper()
	backend := s3mem.New()
	if err := backend.CreateBucket("bucket"); err != nil {
		t.Fatal(err)
	}
	s := &s3Server{handler: gofakes3.New(backend, options...).Server()}
	network := memnet.New()
	listener, err := network.Listen("s3:9000")
	if err != nil {
		t.Fatal(err)
	}
	dialHost := network.Dialer("client")
	s.dial = func(ctx context.Context, _, address string) (net.Conn, error) {
		return dialHost(ctx, address)
	}
	server := &http.Server{Handler: s}
	var done sync.WaitGroup
	done.Go(func() { _ = server.Serve(listener) })
	t.Cleanup(func() {
		_ = server.Close()
		done.Wait()
	})
	return s
}

// next makes the next requests go wrong, in order.
func (s *s3Server) next(faults ...fault) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.faults, s.requests = faults, nil
}

// fromNowOn makes all requests go wrong that have no fault of their own.
func (s *s3Server) fromNowOn(f fault) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.always = f
}

// seen returns the methods of the requests since the last call of next.
func (s *s3Server) seen() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return strings.Join(s.requests, " ")
}

func (s *s3Server) take(r *http.Request) fault {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.requests = append(s.requests, r.Method)
	if len(s.faults) == 0 {
		return s.always
	}
	f := s.faults[0]
	s.faults = s.faults[1:]
	return f
}

// ServeHTTP implements http.Handler.
func (s *s3Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	carryOut := func() *httptest.ResponseRecorder {
		recorder := httptest.NewRecorder()
		s.handler.ServeHTTP(recorder, r)
		return recorder
	}
	switch f := s.take(r); f {
	case none:
		s.handler.ServeHTTP(w, r)
	case cutBefore:
		panic(http.ErrAbortHandler)
	case cutWithin:
		_, _ = io.CopyN(io.Discard, r.Body, r.ContentLength/2)
		panic(http.ErrAbortHandler)
	case cutAfter:
		carryOut()
		panic(http.ErrAbortHandler)
	case failAfter:
		carryOut()
		refuse(w, http.StatusInternalServerError, "InternalError")
	case truncate:
		recorder := carryOut()
		w.Header().Set("Content-Length", strconv.Itoa(recorder.Body.Len()))
		w.Header().Set("Last-Modified", recorder.Header().Get("Last-Modified"))
		w.WriteHeader(recorder.Code)
		_, _ = w.Write(recorder.Body.Bytes()[:recorder.Body.Len()/2])
		w.(http.Flusher).Flush()
		panic(http.ErrAbortHandler)
	case stall:
		_, _ = io.Copy(io.Discard, r.Body)
		<-r.Context().Done()
	case slow:
		time.Sleep(20 * time.Second) // of the bubble's time
		s.handler.ServeHTTP(w, r)
	case unconditional:
		r.Header.Del("If-None-Match")
		s.handler.ServeHTTP(w, r)
	case proxy:
		_, _ = io.Copy(io.Discard, r.Body)
		w.WriteHeader(http.StatusBadGateway)
		_, _ = io.WriteString(w, "<html><h1>Bad gateway</h1></html>")
	default:
		var status int
		var code string
		if _, err := fmt.Sscanf(string(f), "answer %d %s", &status, &code); err != nil {
			panic(err)
		}
		_, _ = io.Copy(io.Discard, r.Body)
		refuse(w, status, code)
	}
}

func refuse(w http.ResponseWriter, status int, code string) {
	w.Header().Set("Content-Type", "application/xml")
	w.WriteHeader(status)
	_, _ = fmt.Fprintf(w, "<?xml version=\"1.0\"?><Error><Code>%s</Code><Message>said %s</Message>"+
		"</Error>", code, code)
}

// testCredentials are what the tests sign with. No error may contain them.
var testCredentials = &Credentials{AccessKey: "the-access-key", SecretKey: "the-secret-key"}

// open opens the server's bucket as a target.
func (s *s3Server) open(t *testing.T, options Options) Target {
	t.Helper()
	options.Credentials, options.dial = testCredentials, s.dial
	opened, err := Open(t.Context(),
		"s3://bucket/some/prefix?endpoint=http://s3:9000&path-style=true", options)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = opened.Close() })
	return opened
}

// backends are the two kinds of targets. Each runs a test with a target that is empty; that of S3
// runs in virtual time, so that no wait between attempts takes any.
var backends = []struct {
	name string
	run  func(t *testing.T, test func(t *testing.T, opened Target))
}{
	{"file", func(t *testing.T, test func(*testing.T, Target)) {
		test(t, openDirectory(t, t.TempDir()+"/with space%"))
	}},
	{"s3", func(t *testing.T, test func(*testing.T, Target)) {
		synctest.Test(t, func(t *testing.T) {
			test(t, startS3(t).open(t, Options{}))
		})
	}},
}

func onBoth(t *testing.T, test func(t *testing.T, opened Target)) {
	for _, backend := range backends {
		t.Run(backend.name, func(t *testing.T) { backend.run(t, test) })
	}
}

func openDirectory(t *testing.T, dir string) Target {
	t.Helper()
	u := url.URL{Scheme: "file", Path: dir}
	opened, err := Open(t.Context(), u.String(), Options{})
	if err != nil {
		t.Fatal(err)
	}
	return opened
}
