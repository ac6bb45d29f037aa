package bugreport

import (
	"archive/zip"
	"bytes"
	"context"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/tidemarkdb/tidemark/kv/admin"
	"github.com/tidemarkdb/tidemark/kv/admin/doctor"
)

// source is a cluster from which nothing can be collected.
type source struct{}

func (source) Collect(context.Context, string, admin.Item, int) ([]byte, error) {
	return nil, errors.New(`there is none at "unspeakable`)
}

func (source) Events(context.Context, uint64, uint64, int) ([]admin.Event, error) {
	return []admin.Event{{SplitAt: []byte("unspeakable"), Reason: `split at "unspeakable`,
		Outcome: `cut in "unspeakable\`}}, nil
}

// Keys are not in the files: neither in quotes, nor where a text was cut in a key, nor where an
// error contains them without quotes.
func TestReportHasNoKeys(t *testing.T) {
	facts := &doctor.Facts{Now: time.Now(), Errs: map[string]error{},
		Operators: []admin.OperatorInfo{{Partition: 7, Kind: "split", Age: 24 * time.Hour,
			SplitAt: []byte("unspeakable"), Reason: `at "unspeakable\" key" and "unspeakable`,
			WaitsFor: "data at unspeakable cannot be read"}},
		Servers: []doctor.Server{{Address: "a:1"}, {Address: "b:1",
			Err: errors.New(`refused at "unspeakable"`)}},
		Placement: admin.PlacementSettings{Paused: true}}
	var to bytes.Buffer
	failed, err := Write(t.Context(), &to, source{}, facts, Options{Version: "v",
		Progress: func(string, int, int) {}})
	if err != nil || failed != len(items)+1 {
		t.Fatalf("%d failed, %v", failed, err)
	}
	r, err := zip.NewReader(bytes.NewReader(to.Bytes()), int64(to.Len()))
	if err != nil {
		t.Fatal(err)
	}
	all := ""
	for _, f := range r.File {
		in, err := f.Open()
		if err != nil {
			t.Fatal(err)
		}
		content, err := io.ReadAll(in)
		if err != nil {
			t.Fatal(err)
		}
		all += string(content)
		if i := bytes.Index(content, []byte("unspeakable")); i >= 0 {
			t.Errorf("%s has a key: %s", f.Name, content[max(0, i-100):i+11])
		}
	}
	for _, kept := range []string{"its operator (split) has taken", "waits for: (left out)",
		"\\\"tidemark placement resume\\\"", "there is none at (left out)"} {
		if !strings.Contains(all, kept) {
			t.Errorf("there is no %q", kept)
		}
	}
	if facts.Operators[0].WaitsFor == leftOut {
		t.Error("the facts were changed")
	}
}
