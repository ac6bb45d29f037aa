package manifest

import (
	"fmt"

	"github.com/tidemarkdb/tidemark/hlc"
	"github.com/tidemarkdb/tidemark/range/keys"
)

// Point is a moment that can be restored, with all that a restore to it reads. Nobody changes it.
type Point struct {
	At hlc.Timestamp
	// Layers are the chain of a backup at or before At, and Rounds those of a log from the backup's
	// moment to At. Without rounds At is the moment of the backup.
	Layers Layers
	Rounds []*Round
	// Keyspaces are those at the moment, and Units cover each of them, in this order.
	Keyspaces []Keyspace
	Units     []Unit
}

// NewPoint makes a Point of layers that have been checked (Layers.Check). Without rounds the moment
// is that of the layers.
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

// checkRounds says what is wrong with the rounds for a moment: another cluster's, a hole, or an end
// before the moment.
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

// complete says what is missing of a keyspace that the layers do not have.
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

// KeyspaceOf is the keyspace of an id; nil if there was none at the moment.
func (p *Point) KeyspaceOf(id uint32) *Keyspace {
	for i := range p.Keyspaces {
		if p.Keyspaces[i].ID == id {
			return &p.Keyspaces[i]
		}
	}
	return nil
}

// KeyspaceNamed is the keyspace of a name; nil if there was none at the moment.
func (p *Point) KeyspaceNamed(name string) *Keyspace {
	for i := range p.Keyspaces {
		if p.Keyspaces[i].Name == name {
			return &p.Keyspaces[i]
		}
	}
	return nil
}

// Coordination is what has the coordination store: a copy, and the changes that follow it, in their
// order. A round has the state of before its At, so one whose At is after the moment is left out:
// the store is not newer than the keyspaces. The copy is nil if there is none.
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

// Pieces returns, for each layer that a keyspace needs, the pieces with rows in a span, as
// Layers.Pieces does, and the number of layers; none for a keyspace that is in the rounds alone.
func (p *Point) Pieces(ks *Keyspace, span keys.Span) ([][]Piece, error) {
	earlier := p.Layers[len(p.Layers)-1].KeyspaceOf(ks.ID)
	if earlier == nil {
		return nil, nil
	}
	return p.Layers.Pieces(earlier, span)
}
