package examine

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/rand"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/tidemarkdb/tidemark/deploy/embedded/recentlog"
	"github.com/tidemarkdb/tidemark/rpc/diagnosispb"
)

const own = "10.0.0.1:7400"

func examiner(connected *[]string) *Examiner {
	registry := prometheus.NewRegistry()
	registry.MustRegister(prometheus.NewGauge(prometheus.GaugeOpts{Name: "tidemark_test_total"}))
	lines := new(recentlog.Lines)
	io.WriteString(lines, "a line\n")
	return New(Config{Address: own, About: func(x *diagnosispb.Examination) { x.Node = 3 },
		Cluster: func() uint64 { return 7 },
		Known:   func(_ context.Context, address string) bool { return address != "192.0.2.9:1" },
		Conn: func(address string) (*grpc.ClientConn, error) {
			*connected = append(*connected, address)
			return nil, errors.New("no route")
		},
		Wall: func() int64 { return 1234 }, MemoryLimit: 1 << 30, Metrics: registry, Log: lines})
}

// A server answers for itself, and passes questions on to servers of its cluster alone.
func TestWhoIsMeant(t *testing.T) {
	var connected []string
	e := examiner(&connected)
	for _, c := range []struct {
		request *diagnosispb.ExamineRequest
		want    codes.Code
	}{
		{&diagnosispb.ExamineRequest{}, codes.OK},
		{&diagnosispb.ExamineRequest{Server: own, Cluster: 7}, codes.OK},
		{&diagnosispb.ExamineRequest{Server: own, Cluster: 8}, codes.FailedPrecondition},
		{&diagnosispb.ExamineRequest{Server: "192.0.2.9:1"}, codes.NotFound},
		{&diagnosispb.ExamineRequest{Server: "10.0.0.2:7400"}, codes.Unavailable},
	} {
		x, err := e.AskExamine(t.Context(), c.request)
		if status.Code(err) != c.want || err == nil && (x.Node != 3 || x.Address != own) {
			t.Errorf("%v: %v, %v", c.request, x, err)
		}
	}
	if len(connected) != 1 || connected[0] != "10.0.0.2:7400" {
		t.Errorf("connected to %q", connected)
	}
	if _, err := e.Examine(t.Context(), &diagnosispb.ExamineRequest{
		Server: "10.0.0.2:7400"}); status.Code(err) != codes.FailedPrecondition {
		t.Errorf("a call for another server: %v", err)
	}
	if _, err := e.AskCollect(t.Context(), &diagnosispb.CollectRequest{
		Server: "192.0.2.9:1"}); status.Code(err) != codes.NotFound {
		t.Errorf("a collection at a stranger: %v", err)
	}
	x, err := e.Examine(t.Context(), &diagnosispb.ExamineRequest{
		Others: []string{own, "10.0.0.2:7400", "192.0.2.9:1", "10.0.0.2:7400"}})
	if err != nil || len(x.Links) != 1 || x.Links[0].Failure != "no route" {
		t.Errorf("links %v, %v", x.GetLinks(), err)
	}
	if many, err := e.Examine(t.Context(), &diagnosispb.ExamineRequest{
		Others: make([]string, 1000)}); err != nil || len(many.Links) > maxOthers {
		t.Errorf("%d links, %v", len(many.GetLinks()), err)
	}
}

func TestCollect(t *testing.T) {
	e := examiner(new([]string))
	for item, want := range map[diagnosispb.Item]string{
		diagnosispb.Item_METRICS: "tidemark_test_total 0", diagnosispb.Item_LOG: "a line",
		diagnosispb.Item_GOROUTINES: "goroutine profile", diagnosispb.Item_HEAP: ""} {
		r, err := e.Collect(t.Context(), &diagnosispb.CollectRequest{Item: item})
		if err != nil {
			t.Errorf("%v: %v", item, err)
			continue
		}
		z, err := gzip.NewReader(bytes.NewReader(r.Content))
		if err != nil {
			t.Fatal(err)
		}
		if text, err := io.ReadAll(z); err != nil || !strings.Contains(string(text), want) || r.Cut {
			t.Errorf("%v: %q, %v", item, text, err)
		}
	}
	for _, r := range []*diagnosispb.CollectRequest{{}, {Item: 99},
		{Item: diagnosispb.Item_PROCESSOR, Seconds: 31}} {
		if _, err := e.Collect(t.Context(), r); status.Code(err) != codes.InvalidArgument {
			t.Errorf("%v: %v", r, err)
		}
	}
	// A caller who goes ends the measurement, and the next one can measure.
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	for range 2 {
		if _, err := e.Collect(gone, &diagnosispb.CollectRequest{
			Item: diagnosispb.Item_PROCESSOR}); err == nil || status.Code(err) == codes.Unavailable {
			t.Errorf("a measurement for nobody: %v", err)
		}
	}
}

// What does not fit into one message is cut at its beginning.
func TestPack(t *testing.T) {
	content := make([]byte, 4*maxContent)
	rand.Read(content)
	r, err := pack(content)
	if err != nil || !r.Cut || len(r.Content) > maxContent {
		t.Fatalf("%d bytes, cut: %v, %v", len(r.Content), r.Cut, err)
	}
	z, err := gzip.NewReader(bytes.NewReader(r.Content))
	if err != nil {
		t.Fatal(err)
	}
	if kept, err := io.ReadAll(z); err != nil || !bytes.HasSuffix(content, kept) {
		t.Errorf("%d bytes are no end of the content, %v", len(kept), err)
	}
}

func TestNoCertificates(t *testing.T) {
	name := filepath.Join(t.TempDir(), "c.pem")
	if err := os.WriteFile(name, []byte("-----BEGIN CERTIFICATE-----\nAAAA\n"+
		"-----END CERTIFICATE-----\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{name, name + ".none", os.DevNull} {
		if all := (CertificateFile{path, "server"}).read(); len(all) != 1 || all[0].Failure == "" {
			t.Errorf("%s: %v", path, all)
		}
	}
}
