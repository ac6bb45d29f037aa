package txn

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/rpc/kvpb"
)

// Participant is a span of keys in which a transaction has written.
//
// A span outlives partitions, which split and merge: the outcome of a lock is asked of all
// partitions that hold a part of the span. A span that is wider than necessary costs more
// questions, and is still correct.
type Participant struct {
	Keyspace keys.KeyspaceID
	// Hash is the hash number that the span lies in; 0 in a range keyspace.
	Hash uint32
	// First and Last are the lowest and the highest user key of the span, both inclusive. If Last
	// is empty, the participant is the whole keyspace: a client of an earlier version named a
	// partition by the key First alone, and the bounds of that partition are no longer known.
	First, Last []byte
}

// Whole reports whether the participant is the whole keyspace.
func (p *Participant) Whole() bool { return len(p.Last) == 0 }

// Span returns the span in user keys.
func (p *Participant) Span() keys.Span {
	if p.Whole() {
		return keys.Span{}
	}
	return keys.Span{Start: p.First, End: keys.Next(p.Last)}
}

// Proto returns the wire form, which shares the keys.
func (p *Participant) Proto() *kvpb.Participant {
	m := &kvpb.Participant{Keyspace: uint32(p.Keyspace), Key: p.First}
	if p.Whole() {
		return m
	}
	m.Hash = &p.Hash
	if !bytes.Equal(p.First, p.Last) {
		m.Last = p.Last
	}
	return m
}

// parseParticipants checks the participants of a message. The result shares no memory with it.
func parseParticipants(all []*kvpb.Participant) ([]Participant, error) {
	if n := len(all); n == 0 {
		return nil, nil
	} else if n > MaxParticipants {
		return nil, fmt.Errorf("%d participants, at most %d", n, MaxParticipants)
	}
	out := make([]Participant, len(all))
	size := 0
	for i, m := range all {
		p := Participant{Keyspace: keys.KeyspaceID(m.GetKeyspace()), Hash: m.GetHash(),
			First: bytes.Clone(m.GetKey())}
		switch isSpan := m != nil && m.Hash != nil; {
		case isSpan && len(m.Last) == 0:
			p.Last = p.First
		case isSpan:
			p.Last = bytes.Clone(m.Last)
		case len(m.GetLast()) > 0:
			return nil, errors.New("participant: it has a last key, and no hash number")
		}
		out[i] = p
		if size += p.size(); size > MaxParticipantBytes {
			return nil, fmt.Errorf("the keys of its participants take more than %d bytes",
				MaxParticipantBytes)
		}
	}
	return out, validateParticipants(out)
}

func validateParticipants(all []Participant) error {
	for i := range all {
		if err := all[i].validate(); err != nil {
			return fmt.Errorf("participant: %w", err)
		}
		if all[i].Whole() != all[0].Whole() {
			return errors.New("some participants are spans, and some keys of partitions")
		}
	}
	return nil
}

func (p *Participant) validate() error {
	if err := keys.ValidateUserKey(p.First); err != nil {
		return err
	}
	if p.Whole() {
		if p.Hash != 0 {
			return fmt.Errorf("hash number %d of a whole keyspace", p.Hash)
		}
		return nil
	}
	if err := keys.ValidateUserKey(p.Last); err != nil {
		return err
	}
	switch {
	case p.Hash >= keys.MaxHashPartitions:
		return fmt.Errorf("hash number %d, there are %d at most", p.Hash, keys.MaxHashPartitions)
	case bytes.Compare(p.First, p.Last) > 0:
		return fmt.Errorf("its last key %s lies below its first key %s", keys.Pretty(p.Last),
			keys.Pretty(p.First))
	}
	return nil
}

// size returns the bytes of the keys, which count towards MaxParticipantBytes.
func (p *Participant) size() int {
	if p.Whole() || bytes.Equal(p.First, p.Last) {
		return len(p.First)
	}
	return len(p.First) + len(p.Last)
}

// appendTo encodes a participant for a record of the given version.
func (p *Participant) appendTo(dst []byte, version byte) []byte {
	dst = binary.AppendUvarint(dst, uint64(p.Keyspace))
	if version == recordOfKeys {
		return appendBytes(dst, p.First)
	}
	dst = appendBytes(binary.AppendUvarint(dst, uint64(p.Hash)), p.First)
	if bytes.Equal(p.First, p.Last) {
		return append(dst, 0)
	}
	return appendBytes(dst, p.Last)
}

// participant is the reverse of appendTo.
func (d *decoder) participant(version byte) Participant {
	p := Participant{Keyspace: keys.KeyspaceID(d.number("keyspace", 1<<32-1))}
	if version != recordOfKeys {
		p.Hash = uint32(d.number("hash number", keys.MaxHashPartitions-1))
	}
	p.First = bytes.Clone(d.bytes("participant's key", keys.MaxKeySize))
	if version == recordOfKeys {
		return p
	}
	switch last := d.bytes("participant's last key", keys.MaxKeySize); {
	case len(last) == 0:
		p.Last = p.First
	case bytes.Compare(last, p.First) <= 0:
		d.fail("a participant's last key is not above its first")
	default:
		p.Last = bytes.Clone(last)
	}
	return p
}

// ParticipantsFit reports whether a transaction may name these participants, by number and size.
func ParticipantsFit(all []Participant) bool {
	size := 0
	for i := range all {
		size += all[i].size()
	}
	return fit(len(all), size)
}

func fit(n, size int) bool { return n <= MaxParticipants && size <= MaxParticipantBytes }

// bluntKey is the length in bytes to which keys are cut when they take too much room.
const bluntKey = 16

// JoinParticipants turns spans into participants that a transaction may name. Where there are too
// many spans, or their keys are too long, it widens them: neighbours of one keyspace and hash
// number become one, as many as necessary; if that is not enough, keys are cut. JoinParticipants
// takes over `all`. The result does not fit if even that fails, as with a hundred thousand keys
// that begin with the highest bytes.
func JoinParticipants(all []Participant) []Participant {
	if ParticipantsFit(all) {
		return all
	}
	slices.SortFunc(all, compareParticipants)
	for {
		n := len(all)
		if all = joinPairs(all, fit); ParticipantsFit(all) {
			return all
		}
		if len(all) == n {
			break
		}
	}
	for i := range all {
		all[i].blunt()
	}
	return all
}

func compareParticipants(a, b Participant) int {
	return cmp.Or(cmp.Compare(a.Keyspace, b.Keyspace), cmp.Compare(a.Hash, b.Hash),
		bytes.Compare(a.First, b.First))
}

// joinPairs joins pairs of neighbours until enough returns true; `all` is ordered.
func joinPairs(all []Participant, enough func(n, size int) bool) []Participant {
	n, size := len(all), 0
	for i := range all {
		size += all[i].size()
	}
	out := all[:0]
	for i := 0; i < len(all); i++ {
		p := all[i]
		if i+1 < len(all) && !enough(n, size) {
			if next := &all[i+1]; p.Keyspace == next.Keyspace && p.Hash == next.Hash {
				size -= p.size() + next.size()
				if bytes.Compare(p.Last, next.Last) < 0 {
					p.Last = next.Last
				}
				n, size, i = n-1, size+p.size(), i+1
			}
		}
		out = append(out, p)
	}
	return out
}

// blunt cuts the keys to bluntKey bytes, which widens the span.
func (p *Participant) blunt() {
	if len(p.First) > bluntKey {
		p.First = p.First[:bluntKey]
	}
	if len(p.Last) > bluntKey {
		if above := keys.PrefixEnd(p.Last[:bluntKey]); above != nil {
			p.Last = above
		}
	}
}
