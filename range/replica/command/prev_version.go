package command

import (
	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/range/mvcc"
)

// Prior is the newest version of a key as an evaluation sees it.
type Prior struct {
	mvcc.Version
	Found bool
	// Sequence is that of the pending entry that carries it; 0 if it is in the engine.
	Sequence uint64
}

// HasValue reports whether the key has a value, expired or not. Evaluation.Live says whether it can
// be read.
func (p *Prior) HasValue() bool { return p.Found && p.Kind == mvcc.KindValue }

// InternalKey returns the internal key of a user key. It is valid until the next call.
func (e *Evaluation) InternalKey(userKey []byte) []byte {
	e.key = keys.AppendInternalKey(e.key[:0], e.Descriptor, userKey)
	return e.key
}

// Prior looks a key up: among the pending writes, then in the engine. The value is valid until the
// next look-up.
func (e *Evaluation) Prior(userKey []byte) (Prior, error) {
	v, sequence, applied := e.Pending.Newest(userKey)
	if sequence != 0 {
		return Prior{Version: v, Found: true, Sequence: sequence}, nil
	}
	if err := e.see(applied); err != nil {
		return Prior{}, err
	}
	v, found, err := e.getter.Newest(e.InternalKey(userKey))
	return Prior{Version: v, Found: found}, err
}

// PriorOfBlind is Prior for a write that does not depend on the value before. The version's value
// and expiry are not read if memory shows when the key was last written, and that the request
// itself did not write it.
func (e *Evaluation) PriorOfBlind(userKey []byte) (Prior, error) {
	if v, _, ok := e.Pending.Recent(userKey, e.Since); ok {
		return Prior{Version: v, Found: true}, nil
	}
	return e.Prior(userKey)
}

// PriorWithoutValue is Prior for a write that needs to know only whether there was a value.
func (e *Evaluation) PriorWithoutValue(userKey []byte) (Prior, error) {
	if v, expires, ok := e.Pending.Recent(userKey, e.Since); ok && !expires {
		return Prior{Version: v, Found: true}, nil
	}
	return e.Prior(userKey)
}

// see makes the getter see at least everything up to an applied index. A write that leaves the
// pending writes later raises that index.
func (e *Evaluation) see(applied uint64) error {
	if e.getter != nil && e.index == applied {
		return nil
	}
	if err := e.Close(); err != nil {
		return err
	}
	g, err := mvcc.NewGetter(e.State)
	if err != nil {
		return err
	}
	e.getter, e.index = g, applied
	return nil
}
