package catalog

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/tidemarkdb/tidemark/range/backup/archive"
	"github.com/tidemarkdb/tidemark/range/backup/manifest"
	"github.com/tidemarkdb/tidemark/range/backup/target"
)

// Catalog reads a target. Its methods may be called from several goroutines.
type Catalog struct {
	target     target.Target
	identities archive.Identities
	// overlayBytes is the maximum size of an overlay in bytes.
	overlayBytes int
}

// New makes a Catalog. A Catalog without identities can read only what is not encrypted. The caller
// still owns the target, and closes it.
func New(store target.Target, identities archive.Identities) *Catalog {
	return &Catalog{target: store, identities: identities, overlayBytes: overlayBytes}
}

// SetOverlayBytes limits the keys and values of a log that Records holds in memory. A single row
// may be larger. The default is 64 MiB.
func (c *Catalog) SetOverlayBytes(n int) { c.overlayBytes = n }

// Contents are the backups of a target.
type Contents struct {
	// Complete are the heads of the complete backups.
	Complete manifest.Heads
	// Damaged has, by their ids, the backups whose heads are damaged, and the errors. They may be
	// deleted, and nothing else.
	Damaged map[string]error
	// Unfinished are the other backups. They are being made, were given up, or are being deleted.
	Unfinished []Unfinished
}

// Unfinished is a backup without a head.
type Unfinished struct {
	ID      string
	Objects int
	Bytes   int64
	// Changed is the time at which the last object of the backup was written.
	Changed time.Time
}

// Newest returns the newest complete backup. It returns an error if there is none, or if a damaged
// backup is newer.
func (c *Contents) Newest() (*manifest.Head, error) {
	all := c.Complete.Sorted()
	if len(all) == 0 {
		return nil, errors.New("there is no complete backup")
	}
	newest := all[len(all)-1]
	for id, err := range c.Damaged {
		if manifest.BeganOf(id).After(newest.At.Time()) {
			return nil, fmt.Errorf("the newest backup %s is damaged: %w. %s is the newest one before; give its "+
				"id to use it", id, err, newest.ID)
		}
	}
	return newest, nil
}

// List lists the backups. If the target does not let it read a head, or a later version wrote the
// head, List returns an error with the head's name.
func (c *Catalog) List(ctx context.Context) (*Contents, error) {
	contents := &Contents{Complete: make(manifest.Heads), Damaged: make(map[string]error)}
	at := -1
	for object, err := range c.target.List(ctx, manifest.Root) {
		if err != nil {
			return nil, err
		}
		id, _, ok := manifest.IDOf(object.Name)
		if !ok {
			continue
		}
		if manifest.IsHead(object.Name) {
			switch head, err := c.Head(ctx, id); {
			case errors.Is(err, archive.ErrCorrupt):
				contents.Damaged[id] = err
			case err != nil:
				return nil, err
			default:
				contents.Complete[id] = head
			}
		}
		if at < 0 || contents.Unfinished[at].ID != id {
			contents.Unfinished = append(contents.Unfinished, Unfinished{ID: id})
			at++
		}
		u := &contents.Unfinished[at]
		u.Objects, u.Bytes = u.Objects+1, u.Bytes+object.Size
		if u.Changed.Before(object.Modified) {
			u.Changed = object.Modified
		}
	}
	rest := contents.Unfinished[:0]
	for _, u := range contents.Unfinished {
		if contents.Complete[u.ID] == nil && contents.Damaged[u.ID] == nil {
			rest = append(rest, u)
		}
	}
	contents.Unfinished = rest
	return contents, nil
}

// Head reads the head of a complete backup.
func (c *Catalog) Head(ctx context.Context, id string) (*manifest.Head, error) {
	name := manifest.HeadName(id)
	data, err := c.unseal(ctx, name, manifest.HeadKind)
	if err != nil {
		return nil, err
	}
	head, err := manifest.DecodeHead(data)
	if err == nil && head.ID != id {
		err = fmt.Errorf("%w: it is the head of the backup %s", archive.ErrCorrupt, head.ID)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return head, nil
}

// Chain reads the heads of the backups that a restore of a backup needs. A backup that is not there
// is an error that wraps manifest.ErrBroken.
func (c *Catalog) Chain(ctx context.Context, id string) ([]*manifest.Head, error) {
	heads := make(manifest.Heads)
	for at := id; at != "" && heads[at] == nil; {
		head, err := c.Head(ctx, at)
		if errors.Is(err, target.ErrNotFound) {
			return nil, fmt.Errorf("%w: the backup %s is not there: %w", manifest.ErrBroken, at, err)
		}
		if err != nil {
			return nil, err
		}
		heads[at], at = head, head.Parent
	}
	return heads.Chain(id)
}

// unseal reads and unseals an object.
func (c *Catalog) unseal(ctx context.Context, name, kind string) ([]byte, error) {
	sealed, err := c.target.Get(ctx, name)
	if err != nil {
		return nil, err
	}
	data, err := archive.Unseal(sealed, kind, c.identities)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return data, nil
}

// Manifest reads the manifest of a complete backup.
func (c *Catalog) Manifest(ctx context.Context, id string) (*manifest.Manifest, error) {
	name := manifest.ManifestName(id)
	data, err := c.unseal(ctx, name, manifest.ManifestKind)
	if err != nil {
		return nil, err
	}
	m, err := manifest.DecodeManifest(data)
	if err == nil && m.Head.ID != id {
		err = fmt.Errorf("it is the manifest of the backup %s", m.Head.ID)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return m, nil
}

// Layers reads the manifests of a backup's chain, beginning with the full backup, and checks that
// they fit together.
func (c *Catalog) Layers(ctx context.Context, id string) (manifest.Layers, error) {
	heads := make(manifest.Heads)
	for at := id; at != ""; {
		if heads[at] != nil {
			return nil, fmt.Errorf("%w: %s is among its own parents", manifest.ErrBroken, at)
		}
		head, err := c.Head(ctx, at)
		if errors.Is(err, target.ErrNotFound) && at != id {
			return nil, fmt.Errorf("%w: %s needs the backup %s, which is not there", manifest.ErrBroken,
				id, at)
		}
		if err != nil {
			return nil, err
		}
		heads[at] = head
		at = head.Parent
	}
	chain, err := heads.Chain(id)
	if err != nil {
		return nil, err
	}
	var layers manifest.Layers
	for _, head := range chain {
		m, err := c.Manifest(ctx, head.ID)
		if err != nil {
			return nil, err
		}
		layers = append(layers, m)
	}
	return layers, layers.Check(chain)
}

// Piece reads a piece into a Reader, and compares the piece with its description in the manifest.
func (c *Catalog) Piece(ctx context.Context, m *manifest.Manifest, p *manifest.Piece,
	r *archive.Reader) error {
	if err := c.object(ctx, p, r); err != nil {
		return err
	}
	if h := r.Header(); h.Backup != m.Head.ID || h.Kind != string(m.Head.Kind) ||
		h.At != m.Head.At.Timestamp || uint64(r.Count()) != p.Records {
		return fmt.Errorf("%s: %w: it is a piece of the backup %s at %v with %d records", p.Name,
			archive.ErrCorrupt, h.Backup, h.At, r.Count())
	}
	return nil
}

// object reads the object of a piece into a Reader, and compares the object's sum.
func (c *Catalog) object(ctx context.Context, p *manifest.Piece, r *archive.Reader) error {
	data, err := c.target.Get(ctx, p.Name)
	if err != nil {
		return err
	}
	if err := (archive.Sum{SHA256: p.Sum, Size: int64(p.Size)}).Check(data); err != nil {
		return fmt.Errorf("%s: %w", p.Name, err)
	}
	if err := r.Reset(data, c.identities); err != nil {
		return fmt.Errorf("%s: %w", p.Name, err)
	}
	return nil
}
