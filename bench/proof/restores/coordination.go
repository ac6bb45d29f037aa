package restores

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"

	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/tidemarkdb/tidemark/deploy/embedded/backup"
	"github.com/tidemarkdb/tidemark/kv"
	"github.com/tidemarkdb/tidemark/placement/etcdapi/etcdfile"
	"github.com/tidemarkdb/tidemark/range/backup/catalog"
)

// pageOfKeys is the number of keys of the coordination store that are read at a time.
const pageOfKeys = 500

// stored is the coordination store in a backup.
type stored struct {
	revision int64
	pairs    []*mvccpb.KeyValue
}

// compareCoordination compares the coordination store in a backup, or at a moment in a log, with a
// client's read at the same revision. It also compares the store with the trace, whose rows are
// written to a keyspace first.
func (o *operation) compareCoordination(ctx context.Context, id, log string,
	at kv.Timestamp) error {
	if o.run.OpenEtcd == nil {
		return nil
	}
	var copied stored
	err := o.withCatalog(ctx, func(ctx context.Context, c opened) (err error) {
		copied, err = c.coordination(ctx, id, log, at)
		return err
	})
	if errors.Is(err, catalog.ErrNoCoordination) {
		return nil
	}
	if err != nil {
		o.run.Violation("restores: the coordination store of %s %s cannot be read: %v", id, log, err)
		return err
	}
	client, hangUp, err := o.run.OpenEtcd(ctx)
	if err != nil {
		return err
	}
	defer hangUp()
	var want []*mvccpb.KeyValue
	compacted := false
	if err := o.try(ctx, func(ctx context.Context) (err error) {
		want, err = keysAt(ctx, client, copied.revision)
		compacted = errors.Is(err, rpctypes.ErrCompacted)
		if compacted {
			return nil
		}
		return err
	}); err != nil {
		return err
	}
	if compacted {
		o.run.Count("coordination store not compared", errors.New("compacted"))
	} else {
		if why := differentKeys(want, copied.pairs); why != "" {
			o.run.Violation("restores: the coordination store of %s %s at revision %d: %s", id, log,
				copied.revision, why)
		}
		o.run.Count("coordination store compared", nil)
	}
	return o.compareOrder(ctx, copied, at, id)
}

// compareOrder checks that the coordination store is not newer than the trace in the same backup.
func (o *operation) compareOrder(ctx context.Context, copied stored, at kv.Timestamp,
	id string) error {
	step := 0
	for _, pair := range copied.pairs {
		if string(pair.Key) == traceKey {
			step, _ = strconv.Atoi(string(pair.Value))
		}
	}
	if at.IsZero() {
		if err := o.withCatalog(ctx, func(ctx context.Context, c opened) error {
			head, err := c.Head(ctx, id)
			if err == nil {
				at = head.At.Timestamp
			}
			return err
		}); err != nil {
			return err
		}
	}
	if err := o.read(ctx, at); err != nil || o.sources[at][Name] == nil {
		return err
	}
	newest := 0
	for _, row := range o.sources[at][Name] {
		number, _, _ := strings.Cut(string(row.Value), " ")
		if n, err := strconv.Atoi(number); err == nil && bytes.HasPrefix(row.Key, []byte("row-")) {
			newest = max(newest, n)
		}
	}
	// A row that expires soon may be gone, and so may a deleted row.
	if newest < step && step%11 != 0 {
		version, _ := o.versions.Load(step)
		o.run.Violation("restores: at %v the coordination store of %s has step %d, and the keyspace "+
			"step %d; step %d was written to the keyspace first, at %v", at, id, step, newest, step,
			version)
	}
	return nil
}

// keysAt reads all keys at a revision.
func keysAt(ctx context.Context, client *clientv3.Client, revision int64) (
	all []*mvccpb.KeyValue, err error) {
	for from := "\x00"; ; {
		answer, err := client.Get(ctx, from, clientv3.WithFromKey(), clientv3.WithRev(revision),
			clientv3.WithLimit(pageOfKeys))
		if err != nil {
			return nil, err
		}
		all = append(all, answer.Kvs...)
		if !answer.More || len(answer.Kvs) == 0 {
			return all, nil
		}
		from = string(answer.Kvs[len(answer.Kvs)-1].Key) + "\x00"
	}
}

// differentKeys describes the differences between two lists of keys; empty: none.
func differentKeys(want, got []*mvccpb.KeyValue) string {
	text := func(pair *mvccpb.KeyValue) string {
		return fmt.Sprintf("%q=%.40q created %d modified %d version %d lease %d", pair.Key, pair.Value,
			pair.CreateRevision, pair.ModRevision, pair.Version, pair.Lease)
	}
	for i := range min(len(want), len(got)) {
		if text(want[i]) != text(got[i]) || !bytes.Equal(want[i].Value, got[i].Value) {
			return fmt.Sprintf("it has %s, and must have %s", text(got[i]), text(want[i]))
		}
	}
	switch {
	case len(got) > len(want):
		return "it has " + text(got[len(want)]) + ", which must not be there"
	case len(want) > len(got):
		return "it lacks " + text(want[len(got)])
	}
	return ""
}

// coordination reads the coordination store in a backup, or at a moment in a log.
func (c opened) coordination(ctx context.Context, id, log string, at kv.Timestamp) (s stored,
	err error) {
	point, err := c.Point(ctx, id, log, at)
	if err != nil {
		return s, err
	}
	directory, err := os.MkdirTemp("", "tidemark-restores-")
	if err != nil {
		return s, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(directory)) }()
	path, err := backup.Coordination(ctx, c.Catalog, point, directory)
	if err != nil {
		return s, err
	}
	file, err := etcdfile.Open(ctx, path, etcdfile.Options{WithoutSum: true})
	if err != nil {
		return s, err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	s.revision = int64(file.Revision)
	for n := range file.Len() {
		key, err := file.Key(n)
		if err != nil {
			return s, err
		}
		if key.KV.Version != 0 {
			s.pairs = append(s.pairs, key.KV)
		}
	}
	return s, nil
}
