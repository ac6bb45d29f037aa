package bugreport

import (
	"archive/zip"
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/tidemarkdb/tidemark/kv/admin"
	"github.com/tidemarkdb/tidemark/kv/admin/doctor"
)

// maxEvents is the number of events of placement that are collected.
const maxEvents = 1000

// Source is the cluster from which data is collected. *admin.Client is a Source.
type Source interface {
	Collect(ctx context.Context, server string, item admin.Item, seconds int) ([]byte, error)
	Events(ctx context.Context, partition, node uint64, limit int) ([]admin.Event, error)
}

// Options choose the content of a report.
type Options struct {
	// Version is the version of the collecting program.
	Version string
	// ProfileSeconds is the time for which the processor time of each server is measured. 0 means that
	// it is not measured.
	ProfileSeconds int
	// Progress is called before each server is asked. It must not be nil.
	Progress func(server string, number, of int)
}

// item is a file of each server.
type item struct {
	name string
	what admin.Item
}

var items = []item{
	{"metrics.txt", admin.ItemMetrics}, {"goroutines.txt", admin.ItemGoroutines},
	{"heap.pprof", admin.ItemHeap}, {"log.txt", admin.ItemLog},
}

// Write writes the zip file. Data that cannot be collected is noted in the file errors.txt of the
// zip, and counted. Write returns an error if the zip cannot be written, or if the context has
// ended.
func Write(ctx context.Context, to io.Writer, source Source, facts *doctor.Facts,
	o Options) (failed int, err error) {
	w := &writer{zip: zip.NewWriter(to), at: facts.Now}
	w.file("README.txt", []byte(readme(facts, o)))
	hidden := *facts
	hidden.Operators = HideOperators(facts.Operators)
	w.json("doctor.json", doctor.Judge(&hidden))
	w.json("cluster/status.json", facts.Status)
	w.json("cluster/nodes.json", facts.Nodes)
	w.json("cluster/core.json", facts.Core)
	w.json("cluster/keyspaces.json", HideKeyspaces(facts.Keyspaces))
	w.json("cluster/partitions.json", HidePartitions(facts.Partitions))
	w.json("cluster/operators.json", hidden.Operators)
	w.json("cluster/placement.json", facts.Placement)
	w.json("cluster/upgrade.json", facts.Upgrade)
	w.json("cluster/backups.json", facts.Backups)
	w.json("cluster/schedules.json", facts.Schedules)
	for name, err := range facts.Errs {
		w.failed("cluster/"+name, err)
	}
	events, err := source.Events(ctx, 0, 0, maxEvents)
	w.failed("cluster/events", err)
	w.json("cluster/events.json", HideEvents(events))
	for i, s := range facts.Servers {
		o.Progress(s.Address, i+1, len(facts.Servers))
		folder := "servers/" + fileName(s.Address) + "/"
		if s.Err != nil {
			w.failed(folder+"examination", s.Err)
			continue
		}
		w.json(folder+"examination.json", s.Examination)
		for _, x := range items {
			w.collect(ctx, source, s.Address, folder+x.name, x.what, 0)
		}
		if o.ProfileSeconds > 0 {
			w.collect(ctx, source, s.Address, folder+"processor.pprof", admin.ItemProcessor,
				o.ProfileSeconds)
		}
		if ctx.Err() != nil {
			return w.failures, context.Cause(ctx)
		}
	}
	w.file("errors.txt", []byte(w.errors.String()))
	return w.failures, w.close()
}

func readme(facts *doctor.Facts, o Options) string {
	return fmt.Sprintf(`A report of the state of a Tidemark cluster, made by tidemark %s
at %s.

doctor.json      what "tidemark doctor" finds
cluster/         the state of the cluster, as JSON; sizes in bytes, times in nanoseconds
servers/         of each server what it reports of itself and its machine (examination.json),
                 its metrics, the stacks of its goroutines, profiles for "go tool pprof", and
                 the last lines of its log
errors.txt       what could not be collected, and why

Keys, values, secrets and credentials are left out. Names of keyspaces, users' names in error
messages, addresses and directories are there: look through the files before you pass them on.
`, o.Version, facts.Now.UTC().Format(time.RFC3339))
}

// fileName makes a name of a folder from an address.
func fileName(address string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z', r >= '0' && r <= '9', r == '.', r == '-':
			return r
		}
		return '_'
	}, address)
}

// writer writes the files of a zip. After the first error it does nothing.
type writer struct {
	zip      *zip.Writer
	at       time.Time
	err      error
	errors   strings.Builder
	failures int
}

func (w *writer) file(name string, content []byte) {
	if w.err != nil {
		return
	}
	f, err := w.zip.CreateHeader(&zip.FileHeader{Name: name, Method: zip.Deflate, Modified: w.at})
	if err == nil {
		_, err = f.Write(content)
	}
	w.err = err
}

// json writes a value as JSON, without the quoted parts of its texts.
func (w *writer) json(name string, value any) {
	text, err := HideQuoted(value)
	if err != nil {
		w.failed(name, err)
		return
	}
	w.file(name, text)
}

// failed notes that data could not be collected. It does nothing if err is nil.
func (w *writer) failed(name string, err error) {
	if err != nil {
		w.failures++
		fmt.Fprintf(&w.errors, "%s: %s\n", name, withoutQuoted(err.Error()))
	}
}

func (w *writer) collect(ctx context.Context, source Source, server, name string, what admin.Item,
	seconds int) {
	content, err := source.Collect(ctx, server, what, seconds)
	if err != nil {
		w.failed(name, err)
		return
	}
	w.file(name, content)
}

func (w *writer) close() error {
	if err := w.zip.Close(); w.err == nil {
		w.err = err
	}
	return w.err
}
