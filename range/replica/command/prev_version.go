package command

import (
	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/range/mvcc"
)

// Prior is the newest version of a key, as an evaluation sees it.
type Prior struct {
	mvcc.Version
	Found bool
	// Sequence is of the pending entry that carries it; 0 if it is in the engine.
	Sequence uint64
}

// HasValue says that the key has a value, expired or not. Whether it is there to be read says
// Evaluation.Live.
func (p *Prior) HasValue() bool { return p.Found && p.Kind == mvcc.KindValue }

// InternalKey is the internal key of a user key. It is valid until the next call.
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

// PriorOfBlind is Prior for a write that does not ask what was there: the value is not looked up if
// it is known without that when the key was written last, and that this was not by the request
// itself. Nor is the expiry.
func (e *Evaluation) PriorOfBlind(userKey []byte) (Prior, error) {
	if v, _, ok := e.Pending.Recent(userKey, e.Since); ok {
		return Prior{Version: v, Found: true}, nil
	}
	return e.Prior(userKey)
}

// PriorWithoutValue is Prior for a write that asks only whether there was a value.
func (e *Evaluation) PriorWithoutValue(userKey []byte) (Prior, error) {
	if v, expires, ok := e.Pending.Recent(userKey, e.Since); ok && !expires {
		return Prior{Version: v, Found: true}, nil
	}
	return e.Prior(userKey)
}

// see makes the getter see at least what was applied at the index. What was removed from the
// pending writes later raised the index.
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
