package catalog

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"

	"github.com/tidemarkdb/tidemark/range/backup/archive"
	"github.com/tidemarkdb/tidemark/range/backup/manifest"
)

// Verified is the result of Verify.
type Verified struct {
	// Backups are the backups that can be restored, in the order of their moments.
	Backups []*manifest.Head
	// Logs are the logs whose moments can be restored.
	Logs []VerifiedLog
	// Totals count the objects that were read.
	Totals manifest.Totals
	// Problems describe everything that is wrong, in words.
	Problems []string
	// Sealed is set if some backups could not be decrypted because an identity was missing. Their
	// objects have the right checksums. Nothing more is known about them.
	Sealed bool
}

// Verify reads every byte of a backup and of the backups that it continues. With an empty id it
// reads all backups and logs. It proves that each of them can be restored: each object has the sum
// that its manifest says; each piece has its records, in order and within their unit; the units
// cover each keyspace; each chain is complete; and the rounds of each log follow each other without
// a gap. Verify returns an error only if the target cannot be reached. Everything that is wrong
// with the backups is a problem in Verified. progress is called for every object, unless it is nil.
func (c *Catalog) Verify(ctx context.Context, id string,
	progress func(manifest.Totals)) (*Verified, error) {
	contents, err := c.List(ctx)
	if err != nil {
		return nil, err
	}
	v := &verification{catalog: c, ctx: ctx, seen: make(map[string]error),
		locked: make(map[string]bool), progress: progress}
	if v.progress == nil {
		v.progress = func(manifest.Totals) {}
	}
	for _, head := range contents.Complete.Sorted() {
		if id != "" && head.ID != id {
			continue
		}
		if err := v.chain(contents.Complete, head); err != nil {
			return nil, err
		}
	}
	for _, damaged := range slices.Sorted(maps.Keys(contents.Damaged)) {
		if id == "" || id == damaged {
			v.Problems = append(v.Problems, fmt.Sprintf("%s cannot be restored: %v", damaged,
				contents.Damaged[damaged]))
		}
	}
	if id != "" && contents.Complete[id] == nil && contents.Damaged[id] == nil {
		return nil, fmt.Errorf("there is no complete backup %s in %s", id, c.target)
	}
	if id != "" {
		return &v.Verified, nil
	}
	logs, damaged, err := c.Logs(ctx)
	if err != nil {
		return nil, err
	}
	for _, id := range slices.Sorted(maps.Keys(damaged)) {
		v.Problems = append(v.Problems, fmt.Sprintf("the log %s: %v", id, damaged[id]))
	}
	for i := range logs {
		if err := v.log(contents.Complete, &logs[i]); err != nil {
			return nil, err
		}
	}
	return &v.Verified, nil
}

// verification is the state of a running Verify.
type verification struct {
	Verified
	catalog  *Catalog
	ctx      context.Context
	progress func(manifest.Totals)
	reader   archive.Reader
	// seen has the backups that were read, each with its problem or nil. locked has those that could
	// not be decrypted.
	seen   map[string]error
	locked map[string]bool
}

// chain verifies a backup and all backups that it continues.
func (v *verification) chain(heads manifest.Heads, head *manifest.Head) error {
	chain, err := heads.Chain(head.ID)
	locked := false
	for _, part := range chain {
		if err != nil {
			break
		}
		found, known := v.seen[part.ID]
		if !known {
			found = v.backup(part)
			v.seen[part.ID] = found
		}
		locked = locked || v.locked[part.ID]
		if found != nil {
			err = fmt.Errorf("backup %s: %w", part.ID, found)
		}
	}
	if err == nil && !locked {
		_, err = v.catalog.Layers(v.ctx, head.ID)
	}
	if stop := v.ctx.Err(); stop != nil {
		return stop
	}
	if err != nil {
		v.Problems = append(v.Problems, fmt.Sprintf("%s cannot be restored: %v", head.ID, err))
		return nil
	}
	v.Backups = append(v.Backups, head)
	return nil
}

// backup verifies one backup without the backups that it continues.
func (v *verification) backup(head *manifest.Head) error {
	m, err := v.catalog.Manifest(v.ctx, head.ID)
	if errors.Is(err, archive.ErrNoIdentity) {
		v.Sealed, v.locked[head.ID] = true, true
		return v.sealed(manifest.Prefix(head.ID))
	}
	if err != nil {
		return err
	}
	if sum := m.Sum(); sum != head.Totals || m.Head.At != head.At || m.Head.Parent != head.Parent {
		return fmt.Errorf("its head says %+v at %v, its manifest %+v at %v", head.Totals, head.At, sum,
			m.Head.At)
	}
	if m.Coordination != nil {
		if err := v.catalog.Coordination(v.ctx, m.Coordination, func(part []byte) error {
			v.count(uint64(len(part)), 0)
			return nil
		}); err != nil {
			return err
		}
	}
	for i := range m.Done {
		for j := range m.Done[i].Pieces {
			p := &m.Done[i].Pieces[j]
			if err := v.piece(m, i, p); err != nil {
				return err
			}
			v.count(p.Size, p.Records)
		}
	}
	return nil
}

// count adds an object to the totals.
func (v *verification) count(stored, records uint64) {
	v.Totals.Pieces++
	v.Totals.Stored += stored
	v.Totals.Records += records
	v.progress(v.Totals)
}

// piece reads a piece to its end.
func (v *verification) piece(m *manifest.Manifest, unit int, p *manifest.Piece) error {
	r := &v.reader
	if err := v.catalog.Piece(v.ctx, m, p, r); err != nil {
		return err
	}
	u := &m.Units[unit]
	h := r.Header()
	if h.KeyspaceID != u.Keyspace || string(h.Start) != string(u.Start) ||
		string(h.End) != string(u.End) {
		return fmt.Errorf("%s is of another unit", p.Name)
	}
	var first, last []byte
	n, size := uint64(0), uint64(0)
	for {
		record, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return fmt.Errorf("%s: %w", p.Name, err)
		}
		if n == 0 {
			first = append(first, record.Key...)
		}
		last = append(last[:0], record.Key...)
		n, size = n+1, size+uint64(len(record.Key)+len(record.Value))
	}
	if n != p.Records || size != p.Bytes || string(first) != string(p.First) ||
		string(last) != string(p.Last) {
		return fmt.Errorf("%s has %d records of %d bytes, its manifest says %d of %d", p.Name, n, size,
			p.Records, p.Bytes)
	}
	return nil
}

// sealed reads objects that cannot be decrypted, and checks their own checksums.
func (v *verification) sealed(prefix string) error {
	for object, err := range v.catalog.target.List(v.ctx, prefix) {
		if err != nil {
			return err
		}
		if manifest.IsTrial(object.Name) {
			continue
		}
		data, err := v.catalog.target.Get(v.ctx, object.Name)
		if err != nil {
			return err
		}
		if _, err := archive.Inspect(data); err != nil {
			return fmt.Errorf("%s: %w", object.Name, err)
		}
		v.count(uint64(len(data)), 0)
	}
	return nil
}
