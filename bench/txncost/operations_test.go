package main

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/tidemarkdb/tidemark/kv"
)

// BenchmarkOperation does the operations one by one, with no pause between them, so that profiles
// and allocations of each can be looked at. The allocations are those of the client and of all
// three nodes.
func BenchmarkOperation(b *testing.B) {
	ctx := context.Background()
	cluster, err := start(ctx, b.TempDir(), 0)
	if err != nil {
		b.Fatal(err)
	}
	defer cluster.close()
	client, err := kv.Open(ctx, cluster.Endpoints())
	if err != nil {
		b.Fatal(err)
	}
	defer client.Close()
	p, err := fill(ctx, client)
	if err != nil {
		b.Fatal(err)
	}
	end, err := p.compare(ctx, &config{dir: b.TempDir(), trip: 500 * time.Microsecond}, client,
		cluster.Endpoints())
	if err != nil {
		b.Fatal(err)
	}
	defer end()
	for _, o := range costs(client, p) {
		b.Run(o.name, func(b *testing.B) {
			b.ReportAllocs()
			for n := range 100 { // so that connections are open and all leaders known
				if err := o.do(ctx, n); err != nil {
					b.Fatal(err)
				}
			}
			b.ResetTimer()
			for n := range b.N {
				if err := o.do(ctx, n); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func TestReportIsKept(t *testing.T) {
	page := filepath.Join(t.TempDir(), "transactions.md")
	err := keep(page, "cost", func(out io.Writer) error {
		_, err := io.WriteString(out, "| put | 735 |\n")
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	kept, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	if s := string(kept); !strings.Contains(s, ": cost; ") ||
		!strings.HasSuffix(s, "\n\n| put | 735 |\n") {
		t.Errorf("the page is\n%s", s)
	}
	missing := filepath.Join(t.TempDir(), "none.md")
	failed := errors.New("no cluster")
	if err := keep(missing, "cost", func(io.Writer) error {
		return failed
	}); !errors.Is(err, failed) {
		t.Errorf("a run that fails: %v", err)
	}
	if _, err := os.Stat(missing); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a run that failed left a page: %v", err)
	}
}
