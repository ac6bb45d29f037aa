package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"hash"
	"io"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/tidemarkdb/tidemark/cmd/tidemark/internal/output"
	"github.com/tidemarkdb/tidemark/cmd/tidemark/internal/progress"
	"github.com/tidemarkdb/tidemark/kv/coord"
)

func (a *app) coordExportCommand() *cobra.Command {
	var f coordFlags
	var quiet bool
	cmd := &cobra.Command{
		Use:   "export FILE",
		Short: "Save the coordination service as a snapshot of etcd",
		Long: `Save the keys, their history, the leases, users and roles of the coordination service into
FILE, in the format of etcd's snapshots. "etcdutl snapshot restore" makes an etcd of the file, and
"tidemark coord import" another coordination service. While authentication is on, only users with
the role root may do this: the file has the hashes of all passwords. Keep it as you keep those.

The state is that of the server that answers first. The server writes the file before it sends it,
which takes room on its disk.`,
		Example: `  tidemark coord export coordination.db`,
		Args:    arguments("FILE", 1, 1),
		RunE: a.verb(func(ctx context.Context, args []string) error {
			return a.withCoord(ctx, &f, func(client *coord.Client) error {
				return a.coordExport(ctx, client, args[0], quiet)
			})
		}),
	}
	cmd.Flags().BoolVarP(&quiet, "quiet", "q", false, "do not show progress")
	return a.printing(a.coordClient(cmd, &f))
}

func (a *app) coordExport(
	ctx context.Context, client *coord.Client, path string, quiet bool,
) (err error) {
	if _, err := os.Lstat(path); err == nil {
		return fmt.Errorf("%s is there already: it is not overwritten", path)
	}
	file, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".part-")
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			_ = os.Remove(file.Name())
		}
	}()
	shown := progress.Start(progress.Options{Out: a.err, Terminal: a.errTerminal, Width: a.errWidth,
		Quiet: quiet,
		What:  "export " + path, Unit: "bytes"})
	size, err := receiveSnapshot(ctx, client, file, shown)
	shown.Stop()
	if err = errors.Join(err, file.Close()); err != nil {
		return err
	}
	// The file is linked instead of renamed, so that a file that was created meanwhile is not
	// overwritten.
	if err := os.Link(file.Name(), path); err != nil {
		return err
	}
	if err := os.Remove(file.Name()); err != nil {
		return err
	}
	list := a.list(output.Column{Name: "file"}, output.Column{Name: "bytes", Number: true})
	list.Row(path, size)
	return list.Flush()
}

// receiveSnapshot writes a snapshot, durably, and checks it against the sum at its end.
func receiveSnapshot(ctx context.Context, client *coord.Client, file *os.File,
	shown *progress.Progress) (size int64, err error) {
	r, err := client.Etcd().Snapshot(ctx)
	if err != nil {
		return 0, err
	}
	defer r.Close()
	sum := &trailing{sum: sha256.New()}
	buffer := make([]byte, 256<<10)
	for {
		n, err := r.Read(buffer)
		if _, failed := file.Write(buffer[:n]); failed != nil {
			return size, failed
		}
		sum.add(buffer[:n])
		size += int64(n)
		shown.Set(uint64(size))
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return size, fmt.Errorf("after %d bytes: %w", size, err)
		}
	}
	if !sum.right() {
		return size, errors.New("what has come is not what was sent: its sum is not that at its end; " +
			"export it again")
	}
	return size, file.Sync()
}

// trailing computes the sum of all bytes except the last ones, which are the expected sum.
type trailing struct {
	sum  hash.Hash
	last []byte
}

func (t *trailing) add(b []byte) {
	t.last = append(t.last, b...)
	if n := len(t.last) - sha256.Size; n > 0 {
		t.sum.Write(t.last[:n])
		t.last = append(t.last[:0], t.last[n:]...)
	}
}

func (t *trailing) right() bool { return bytes.Equal(t.sum.Sum(nil), t.last) }
