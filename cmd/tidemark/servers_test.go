package main

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tidemarkdb/tidemark/cmd/tidemark/internal/argument"
	"github.com/tidemarkdb/tidemark/cmd/tidemark/internal/exit"
	"github.com/tidemarkdb/tidemark/deploy/embedded"
	"github.com/tidemarkdb/tidemark/rpc/porttest"
)

// screen is a writer that can be read while others write, and waited on.
type screen struct {
	mu      sync.Mutex
	text    bytes.Buffer
	changed chan struct{}
}

func newScreen() *screen { return &screen{changed: make(chan struct{}, 1)} }

func (s *screen) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	select {
	case s.changed <- struct{}{}:
	default:
	}
	return s.text.Write(p)
}

func (s *screen) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.String()
}

// server is a demo or start that runs.
type server struct {
	t        *testing.T
	out, err *screen
	stop     context.CancelFunc
	ended    chan int
}

func serve(t *testing.T, args ...string) *server {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	s := &server{t: t, out: newScreen(), err: newScreen(), stop: cancel, ended: make(chan int, 1)}
	go func() {
		s.ended <- run(ctx, args,
			streams{in: strings.NewReader(""), out: s.out, err: s.err, getenv: func(string) string {
				return ""
			}})
	}()
	t.Cleanup(func() {
		cancel()
		if code := <-s.ended; code != exit.OK {
			t.Errorf("%q ended with code %d: %s", args, code, s.err)
		}
		s.ended <- 0
	})
	return s
}

// says waits until the server has said something on its standard output.
func (s *server) says(pattern string) []string {
	s.t.Helper()
	return s.saysOn(s.out, pattern)
}

func (s *server) saysOn(where *screen, pattern string) []string {
	s.t.Helper()
	limit := time.After(time.Minute)
	for {
		if found := regexp.MustCompile(pattern).FindStringSubmatch(where.String()); found != nil {
			return found
		}
		select {
		case <-where.changed:
		case code := <-s.ended:
			s.ended <- code
			s.t.Fatalf("it ended with code %d before it said %q: %s%s", code, pattern, s.out, s.err)
		case <-limit:
			s.t.Fatalf("it did not say %q; it said: %s%s", pattern, s.out, s.err)
		}
	}
}

func (s *server) end() {
	s.t.Helper()
	s.stop()
	code := <-s.ended
	s.ended <- code
	if code != exit.OK {
		s.t.Fatalf("ended with code %d: %s", code, s.err)
	}
}

// What the demo tells people to type works, and what was written is there when it is started again.
func TestDemoGoesOnWhereItStopped(t *testing.T) {
	dir, address := filepath.Join(t.TempDir(), "a b"), porttest.Address(t)
	demo := []string{"demo", "--dir", dir, "--nodes", "1", "--listen", address}
	pages := porttest.Address(t)
	first := serve(t, append(demo, "--http", pages)...)
	first.says(`Ctrl-C stops the cluster`)
	// The pages that the runbook names are there.
	for page, want := range map[string]string{"/readyz": "ok", "/debug/replicas": `"node": 1`} {
		text, status, err := getPage(t.Context(), http.DefaultClient, "http://"+pages+page)
		if err != nil || status != http.StatusOK || !strings.Contains(text, want) {
			t.Errorf("%s: status %d, %v: %s", page, status, err, text)
		}
	}
	for _, line := range regexp.MustCompile(`(?m)^    tidemark (.*)$`).FindAllStringSubmatch(
		first.out.String(), -1) {
		args := strings.Fields(strings.ReplaceAll(line[1], "hash:8", "hash:2 --replicas 1"))
		if args[0] == "bench" {
			continue
		}
		if got := command(t, "", nil, append(args, "--timeout", "60s")...); got.code != exit.OK {
			t.Fatalf("%q: %+v", args, got)
		}
	}
	first.end()
	if want := "go on with: tidemark demo --dir '" + dir +
		"'"; !strings.Contains(first.out.String(), want) {
		t.Errorf("the demo said\n%swant in it: %s", first.out, want)
	}
	second := serve(t, demo...)
	second.says(`ready after`)
	got := command(t, "", nil, "get", "fruit", "apple", "-o", "raw", "--endpoints", address,
		"--timeout", "60s")
	if got.code != exit.OK || got.out != "green" {
		t.Errorf("after the restart: %+v", got)
	}
	second.end()
}

// A server whose core cannot form says which server is missing, without being asked.
func TestAServerThatIsNotReadySaysWhy(t *testing.T) {
	address, second, third := porttest.Address(t), porttest.Address(t), porttest.Address(t)
	s := serve(t, "start", "--dir", t.TempDir(), "--listen", address, "--core",
		strings.Join([]string{address, second, third}, ","))
	missing := []string{second, third}
	slices.Sort(missing)
	s.saysOn(s.err, `tidemark: not ready yet: the consistent core is forming: it waits for `+
		regexp.QuoteMeta(strings.Join(missing, ", ")))
}

func TestOneServer(t *testing.T) {
	dir, address, http := t.TempDir(), porttest.Address(t), porttest.Address(t)
	start := []string{"start", "--dir", dir, "--listen", address, "--core", address, "--http", http}
	s := serve(t, start...)
	s.says(`^tidemark: ready on ` + regexp.QuoteMeta(address) + "\n$")
	if strings.Contains(s.err.String(), "level=") {
		t.Errorf("logs are quiet by default, but: %s", s.err)
	}
	environment := map[string]string{endpointsEnv: address}
	for _, c := range []struct {
		args string
		code int
		says string
	}{
		{"keyspace create three --partitions hash:1", exit.Usage, "3"},
		{"keyspace create one --partitions hash:2 --replicas 1", exit.OK, ""},
		{"put one key value", exit.OK, ""},
		{"count one -o raw", exit.OK, ""},
	} {
		if got := command(t, "", environment,
			append(strings.Fields(c.args), "--timeout", "60s")...); got.code != c.code ||
			!strings.Contains(got.err, c.says) {
			t.Errorf("%s: %+v", c.args, got)
		}
	}
	if got := command(t, "", environment, "count", "one", "--tls", "--timeout",
		"60s"); got.code != exit.Unavailable ||
		!strings.Contains(got.err,
			"the server speaks no TLS: leave out --tls and --tls-ca, unset TIDEMARK_TLS and") {
		t.Errorf("with TLS: %+v", got)
	}
	var page embedded.DebugReplicas
	if err := getJSON("http://"+http+"/debug/replicas?checksums=true", &page); err != nil {
		t.Error(err)
	}
	if page.Node == 0 || !page.LeadsCore || len(page.Replicas) != 2 {
		t.Fatalf("/debug/replicas: %+v, want a node that leads the core and has 2 replicas", page)
	}
	for _, r := range page.Replicas {
		if !r.Leads || r.Failed != "" || r.Applied == 0 || r.ChecksumAt == 0 ||
			r.ChecksumError != "" || len(r.Peers) != 1 {
			t.Errorf("/debug/replicas: %+v", r)
		}
	}
	got := command(t, "", nil, "start", "--dir", dir, "--listen", porttest.Address(t), "--core",
		address)
	if got.code == exit.OK || !strings.Contains(got.err, dir) ||
		!strings.Contains(got.err, "in use") {
		t.Errorf("a second process on the same directory: %+v", got)
	}
	s.end()
}

func getJSON(url string, into any) error {
	response, err := http.Get(url)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	return json.NewDecoder(response.Body).Decode(into)
}

// With certificates on both sides everything goes through; without them nothing does.
func TestServerWithTLS(t *testing.T) {
	dir, address := t.TempDir(), porttest.Address(t)
	cert, key := certificate(t, dir)
	s := serve(t, "start", "--dir", filepath.Join(dir, "data"), "--listen", address, "--core",
		address, "--tls-cert", cert, "--tls-key", key, "--tls-ca", cert)
	s.says(`tidemark: ready on`)
	secret := []string{"--endpoints", address, "--tls-ca", cert, "--tls-cert", cert, "--tls-key",
		key, "--timeout", "60s"}
	for _, args := range [][]string{
		{"keyspace", "create", "one", "--partitions", "hash:2", "--replicas", "1"},
		{"put", "one", "key", "value"}} {
		if got := command(t, "", nil, append(args, secret...)...); got.code != exit.OK {
			t.Fatalf("%q: %+v", args, got)
		}
	}
	if got := command(t, "", nil,
		append([]string{"get", "one", "key", "-o", "raw"}, secret...)...); got.out != "value" {
		t.Errorf("%+v", got)
	}
	for want, flags := range map[string][]string{
		"wants TLS, and was called without: give --tls":                    nil,
		"wants a client certificate, and was given none: give --tls-cert":  {"--tls-ca", cert},
		"an authority that is not known here: give its file with --tls-ca": {"--tls"},
	} {
		args := append([]string{"get", "one", "key", "--endpoints", address, "--timeout",
			"60s"}, flags...)
		got := command(t, "", nil, args...)
		if got.code != exit.Unavailable || got.out != "" || !strings.Contains(got.err, want) ||
			strings.Contains(got.err, "check that the servers run") {
			t.Errorf("with only %q: %+v\nwant in it %q", flags, got, want)
		}
	}
	// What the environment says need not be given.
	environment := map[string]string{endpointsEnv: address, argument.TLSCAEnv: cert,
		argument.TLSCertEnv: cert, argument.TLSKeyEnv: key}
	if got := command(t, "", environment, "get", "one", "key", "-o", "raw", "--timeout",
		"60s"); got.out != "value" {
		t.Errorf("from the environment: %+v", got)
	}
	if got := command(t, "", environment, "get", "one", "key", "--tls=false", "--timeout",
		"60s"); !strings.Contains(got.err, "wants TLS") {
		t.Errorf("--tls=false with the environment: %+v", got)
	}
	s.end()
}

// certificate makes one that is its own authority, for 127.0.0.1.
func certificate(t *testing.T, dir string) (cert, key string) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test"},
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		NotBefore:   time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), IsCA: true,
		BasicConstraintsValid: true,
		KeyUsage:              x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth,
			x509.ExtKeyUsageClientAuth},
	}
	signed, err := x509.CreateCertificate(rand.Reader, template, template, &private.PublicKey,
		private)
	if err != nil {
		t.Fatal(err)
	}
	encoded, err := x509.MarshalECPrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	cert, key = filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	for path, block := range map[string]*pem.Block{cert: {Type: "CERTIFICATE", Bytes: signed},
		key: {Type: "EC PRIVATE KEY", Bytes: encoded}} {
		if err := os.WriteFile(path, pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return cert, key
}
