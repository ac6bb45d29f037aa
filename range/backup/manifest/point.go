package manifest

import (
	"fmt"

	"github.com/tidemarkdb/tidemark/hlc"
	"github.com/tidemarkdb/tidemark/range/keys"
)

// Point is a moment that can be restored, with the descriptions of everything that the restore
// reads. It does not change.
type Point struct {
	At hlc.Timestamp
	// Layers are the chain of a backup at or before At. Rounds are the rounds of a log from the
	// backup's moment to At. Without rounds, At is the moment of the backup.
	Layers Layers
	Rounds []*Round
	// Keyspaces are the keyspaces at the moment. Units cover each of them, in the same order.
	Keyspaces []Keyspace
	Units     []Unit
}

// NewPoint makes a Point of layers that were checked (Layers.Check). Without rounds the moment must
// be that of the layers.
func NewPoint(layers Layers, rounds []*Round, at hlc.Timestamp) (*Point, error) {
	last := layers[len(layers)-1]
	p := &Point{At: last.Head.At.Timestamp, Layers: layers, Rounds: rounds}
	if len(rounds) == 0 {
		p.Keyspaces, p.Units = last.Keyspaces, last.Units
		return p, nil
	}
	if err := p.checkRounds(at); err != nil {
		return nil, err
	}
	p.At = at
	for _, ks := range rounds[len(rounds)-1].Keyspaces {
		earlier := last.KeyspaceOf(ks.ID)
		if earlier == nil {
			if err := p.complete(&ks); err != nil {
				return nil, err
			}
			p.Units = append(p.Units, Unit{Keyspace: ks.ID})
		} else {
			ks.Splits = earlier.Splits
			for _, u := range last.Units {
				if u.Keyspace == ks.ID {
					p.Units = append(p.Units, u)
				}
			}
		}
		p.Keyspaces = append(p.Keyspaces, ks)
	}
	return p, nil
}

// checkRounds returns an error if the rounds cannot restore the moment: they belong to another
// cluster, have a gap, or end before the moment.
func (p *Point) checkRounds(at hlc.Timestamp) error {
	base := p.Layers[len(p.Layers)-1].Head
	first, last := p.Rounds[0], p.Rounds[len(p.Rounds)-1]
	if first.Cluster != base.Cluster {
		return fmt.Errorf("%w: the backup %s is of the cluster %s, and the log %s of %s", ErrBroken,
			base.ID, base.Cluster, first.Log, first.Cluster)
	}
	for i, r := range p.Rounds[1:] {
		if err := r.Follows(p.Rounds[i]); err != nil {
			return err
		}
	}
	if base.At.Less(first.After.Timestamp) || last.At.Less(at) || at.LessEq(last.After.Timestamp) ||
		at.Less(base.At.Timestamp) {
		return fmt.Errorf("%w: the backup %s at %v and the log %s from %v to %v do not have the moment %v",
			ErrBroken, base.ID, base.At, first.Log, first.After, last.At, at)
	}
	return nil
}

// complete adds the parts of a keyspace that the layers do not have.
func (p *Point) complete(ks *Keyspace) error {
	for _, r := range p.Rounds {
		if there := r.KeyspaceOf(ks.ID); there != nil {
			if there.After.IsZero() {
				return nil
			}
			break
		}
	}
	return fmt.Errorf("%w: the backup %s does not have the keyspace %q, and the log %s has it from %v "+
		"on only", ErrBroken, p.Layers[len(p.Layers)-1].Head.ID, ks.Name, p.Rounds[0].Log,
		p.Rounds[0].After)
}

// KeyspaceOf returns the keyspace with an id, or nil if it did not exist at the moment.
func (p *Point) KeyspaceOf(id uint32) *Keyspace {
	for i := range p.Keyspaces {
		if p.Keyspaces[i].ID == id {
			return &p.Keyspaces[i]
		}
	}
	return nil
}

// KeyspaceNamed returns the keyspace with a name, or nil if it did not exist at the moment.
func (p *Point) KeyspaceNamed(name string) *Keyspace {
	for i := range p.Keyspaces {
		if p.Keyspaces[i].Name == name {
			return &p.Keyspaces[i]
		}
	}
	return nil
}

// Coordination returns the blobs with the coordination store: a copy, and the changes after the
// copy in their order. The state of the store in a round is from before the round's At. Rounds
// whose At is after the moment are left out, so that the store is not newer than the keyspaces.
// base is nil if there is no copy.
func (p *Point) Coordination() (base *Blob, changes []*Blob) {
	base = p.Layers[len(p.Layers)-1].Coordination
	for _, r := range p.Rounds {
		switch b := r.Coordination; {
		case b == nil || p.At.Less(r.At.Timestamp) || base != nil && b.Revision < base.Revision:
		case !b.Changes:
			base, changes = b, nil
		default:
			changes = append(changes, b)
		}
	}
	return base, changes
}

// Pieces returns the pieces that have rows in a span, one list for each layer that the keyspace
// needs, as Layers.Pieces does. It returns no list for a keyspace that only the rounds have.
func (p *Point) Pieces(ks *Keyspace, span keys.Span) ([][]Piece, error) {
	earlier := p.Layers[len(p.Layers)-1].KeyspaceOf(ks.ID)
	if earlier == nil {
		return nil, nil
	}
	return p.Layers.Pieces(earlier, span)
}
