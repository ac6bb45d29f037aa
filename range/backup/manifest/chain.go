package manifest

import (
	"errors"
	"fmt"
	"slices"

	"github.com/tidemarkdb/tidemark/range/keys"
)

// maxChain limits the length of a chain.
const maxChain = 10_000

// Heads are the complete backups of a target by id.
type Heads map[string]*Head

// Sorted returns the backups in the order of the moments that they restore.
func (h Heads) Sorted() []*Head {
	all := make([]*Head, 0, len(h))
	for _, head := range h {
		all = append(all, head)
	}
	slices.SortFunc(all, func(a, b *Head) int {
		if c := a.At.Compare(b.At.Timestamp); c != 0 {
			return c
		}
		if a.ID < b.ID {
			return -1
		}
		return 1
	})
	return all
}

// ErrBroken: a backup of a chain is missing, or does not fit the next backup.
var ErrBroken = errors.New("the chain of backups is broken")

// Chain returns the backups that a restore of a backup needs, from the full backup to the backup
// itself.
func (h Heads) Chain(id string) (chain []*Head, err error) {
	for at := id; ; {
		head := h[at]
		switch {
		case head == nil && at == id:
			return nil, fmt.Errorf("there is no complete backup %s", id)
		case head == nil:
			return nil, fmt.Errorf("%w: %s needs the backup %s, which is not there", ErrBroken,
				chain[len(chain)-1].ID, at)
		case len(chain) == maxChain:
			return nil, fmt.Errorf("%w: %s needs more than %d backups", ErrBroken, id, maxChain)
		}
		if n := len(chain); n > 0 {
			if child := chain[n-1]; child.After != head.At || child.Cluster != head.Cluster {
				return nil, fmt.Errorf("%w: %s continues from %v of the cluster %s, and its parent %s ends "+
					"at %v of the cluster %s", ErrBroken, child.ID, child.After, child.Cluster, head.ID,
					head.At, head.Cluster)
			}
		}
		chain = append(chain, head)
		if head.Kind == Full {
			slices.Reverse(chain)
			return chain, nil
		}
		at = head.Parent
	}
}

// Whole returns the backups that can be restored: no backup of their chains is missing.
func (h Heads) Whole() Heads {
	whole := make(Heads, len(h))
	for id, head := range h {
		if _, err := h.Chain(id); err == nil {
			whole[id] = head
		}
	}
	return whole
}

// NeededBy returns the backups that the given backups continue, directly or indirectly.
func (h Heads) NeededBy(some Heads) map[string]bool {
	needed := make(map[string]bool)
	for _, head := range some {
		for at := head.Parent; at != "" && !needed[at]; {
			needed[at] = true
			if h[at] == nil {
				break
			}
			at = h[at].Parent
		}
	}
	return needed
}

// Layers are the manifests of a chain, in the order of the chain.
type Layers []*Manifest

// Check returns an error if the layers do not fit the chain: a layer belongs to another backup, or
// a layer begins after the end of the layer before.
func (l Layers) Check(chain []*Head) error {
	if len(l) == 0 || len(l) != len(chain) {
		return fmt.Errorf("%w: %d of %d manifests are there", ErrBroken, len(l), len(chain))
	}
	for i, m := range l {
		if m.Head.ID != chain[i].ID || m.Head.At != chain[i].At || m.Head.After != chain[i].After ||
			m.Head.Cluster != chain[i].Cluster {
			return fmt.Errorf("%w: the manifest of %s is that of %s", ErrBroken, chain[i].ID, m.Head.ID)
		}
	}
	for i := range l[len(l)-1].Keyspaces {
		if _, err := l.of(&l[len(l)-1].Keyspaces[i]); err != nil {
			return err
		}
	}
	return nil
}

// of returns the layers that a restore of a keyspace of the last backup needs.
func (l Layers) of(ks *Keyspace) (Layers, error) {
	after := ks.After
	for i := len(l) - 1; ; i-- {
		if after.IsZero() {
			return l[i:], nil
		}
		if i == 0 || l[i-1].Head.At != after {
			return nil, fmt.Errorf("%w: %s has the changes of the keyspace %q after %v, and no backup "+
				"before it ends there", ErrBroken, l[i].Head.ID, ks.Name, after)
		}
		earlier := l[i-1].KeyspaceOf(ks.ID)
		if earlier == nil {
			return nil, fmt.Errorf("%w: %s has the changes of the keyspace %q after %v, and %s does not "+
				"have the keyspace", ErrBroken, l[i].Head.ID, ks.Name, after, l[i-1].Head.ID)
		}
		after = earlier.After
	}
}

// KeyspaceOf returns the keyspace with an id, or nil if the backup does not have it.
func (m *Manifest) KeyspaceOf(id uint32) *Keyspace {
	for i := range m.Keyspaces {
		if m.Keyspaces[i].ID == id {
			return &m.Keyspaces[i]
		}
	}
	return nil
}

// Pieces returns the pieces that have rows in a span, one list for each layer that the keyspace
// needs, the latest layer first. A version of a row in an earlier list hides the versions of the
// row in later lists.
func (l Layers) Pieces(ks *Keyspace, span keys.Span) (lists [][]Piece, err error) {
	layers, err := l.of(ks)
	if err != nil {
		return nil, err
	}
	for _, m := range slices.Backward(layers) {
		lists = append(lists, m.Overlapping(ks.ID, span))
	}
	return lists, nil
}
