package job

import (
	"context"

	"github.com/tidemarkdb/tidemark/range/backup/archive"
	"github.com/tidemarkdb/tidemark/range/backup/manifest"
	"github.com/tidemarkdb/tidemark/range/backup/target"
)

// partBytes is the maximum number of bytes in one object of a blob.
const partBytes = 32 << 20

// BlobWriter writes a blob into a target, in objects of 32 MiB. It is for one goroutine.
type BlobWriter struct {
	Target     target.Target
	Recipients archive.Recipients
	// Kind is the kind of the sealed objects. Name returns the name of an object from its number.
	Kind string
	Name func(part int) string

	blob    manifest.Blob
	waiting []byte
}

// Write adds bytes, which it copies.
func (b *BlobWriter) Write(ctx context.Context, part []byte) error {
	for len(part) > 0 {
		n := min(len(part), partBytes-len(b.waiting))
		b.waiting, part = append(b.waiting, part[:n]...), part[n:]
		if len(b.waiting) == partBytes {
			if err := b.flush(ctx); err != nil {
				return err
			}
		}
	}
	return nil
}

// Written is the number of objects that are in the target.
func (b *BlobWriter) Written() int { return len(b.blob.Names) }

// Finish writes the rest of the blob and returns its description. A blob without content gets one
// empty object.
func (b *BlobWriter) Finish(ctx context.Context) (*manifest.Blob, error) {
	if len(b.waiting) > 0 || len(b.blob.Names) == 0 {
		if err := b.flush(ctx); err != nil {
			return nil, err
		}
	}
	return &b.blob, nil
}

func (b *BlobWriter) flush(ctx context.Context) error {
	sealed, sum, err := archive.Seal(b.Kind, b.waiting, archive.Options{Recipients: b.Recipients})
	if err != nil {
		return err
	}
	name := b.Name(len(b.blob.Names))
	if err := b.Target.Put(ctx, name, sealed); err != nil {
		return err
	}
	b.blob.Names = append(b.blob.Names, name)
	b.blob.Sizes = append(b.blob.Sizes, uint64(sum.Size))
	b.blob.Sums = append(b.blob.Sums, sum.SHA256)
	b.waiting = b.waiting[:0]
	return nil
}
