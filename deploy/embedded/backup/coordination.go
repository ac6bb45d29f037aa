package backup

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/tidemarkdb/tidemark/placement/etcdapi/etcdfile"
	"github.com/tidemarkdb/tidemark/placement/store"
	"github.com/tidemarkdb/tidemark/range/backup/job"
)

// partOfSnapshot is the size of the parts in which the coordination store is passed on.
const partOfSnapshot = 1 << 20

// coordinationState is a state of the coordination store, in the format of etcd's snapshots. It
// implements job.Coordination.
type coordinationState struct {
	export    *store.Export
	directory string
}

// Revision implements job.Coordination.
func (c *coordinationState) Revision() int64 { return int64(c.export.Revision) }

// Close implements job.Coordination.
func (c *coordinationState) Close() { c.export.Close() }

// Copy implements job.Coordination. It writes a file first.
func (c *coordinationState) Copy(ctx context.Context, part func([]byte) error) error {
	path, err := etcdfile.Write(ctx, c.directory, c.export)
	if err != nil {
		return err
	}
	return errors.Join(readParts(path, part), etcdfile.Remove(path))
}

// Changes implements job.Coordination, with a change set of package etcdfile.
func (c *coordinationState) Changes(ctx context.Context, since int64,
	part func([]byte) error) (digest string, err error) {
	set, err := etcdfile.WriteChanges(ctx, partWriter(part), c.export, uint64(since))
	var compacted *store.CompactedError
	if errors.As(err, &compacted) || errors.Is(err, store.ErrFutureRevision) {
		return "", fmt.Errorf("%w: %w", job.ErrTooOld, err)
	}
	return hex.EncodeToString(set.State[:]), err
}

// readParts passes a file on in parts.
func readParts(path string, part func([]byte) error) error {
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	defer file.Close()
	_, err = io.CopyBuffer(partWriter(part), struct{ io.Reader }{file}, make([]byte, partOfSnapshot))
	return err
}

// partWriter is a writer that passes each write on as a part.
type partWriter func([]byte) error

// Write implements io.Writer.
func (w partWriter) Write(b []byte) (int, error) { return len(b), w(b) }
