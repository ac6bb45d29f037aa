package replica

import (
	"github.com/tidemarkdb/tidemark/hlc"
	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/range/mvcc"
)

// prior is the newest version of a key, as evaluation sees it.
type prior struct {
	mvcc.Version
	found bool
	// sequence is of the proposal that carries it; 0 if it is in the engine.
	sequence uint64
}

// live says that the key has a value.
func (p *prior) live() bool { return p.found && p.Kind == mvcc.KindValue }

// internalKey is the internal key of a user key. It is valid until the next call.
func (e *evaluation) internalKey(userKey []byte) []byte {
	e.key = keys.AppendInternalKey(e.key[:0], e.descriptor, userKey)
	return e.key
}

// prior looks a key up: in flight, then in the engine. The value is valid until the next look-up.
func (e *evaluation) prior(userKey []byte) (prior, error) {
	r := e.r
	if hook := r.node.hooks.read; hook != nil {
		hook()
	}
	r.mu.Lock()
	if w := r.mu.pending.Newest(text(userKey)); w != nil {
		p := prior{Version: w.Version(), found: true, sequence: w.Sequence}
		r.mu.Unlock()
		return p, nil
	}
	index := r.mu.applied.index
	r.mu.Unlock()
	if err := e.refresh(index); err != nil {
		return prior{}, err
	}
	v, found, err := e.getter.View(e.internalKey(userKey), hlc.MaxTimestamp)
	return prior{Version: v, found: found}, err
}

// priorOfBlind is prior for a write that does not ask what was there: the value is not looked up if it is known without that
// when the key was written last, and that this was not by the request itself.
func (e *evaluation) priorOfBlind(w *write, userKey []byte) (prior, error) {
	r := e.r
	r.mu.Lock()
	if r.mu.pending.Newest(text(userKey)) == nil && r.mu.reign == e.reign {
		known, ok := r.mu.recent.Find(text(userKey))
		if ok && known.Timestamp.LessEq(w.since(r)) {
			r.mu.Unlock()
			p := prior{
				Version: mvcc.Version{Timestamp: known.Timestamp, Kind: mvcc.KindTombstone, Waits: known.CommitWait},
				found:   true,
			}
			if known.Live {
				p.Kind = mvcc.KindValue
			}
			return p, nil
		}
	}
	r.mu.Unlock()
	return e.prior(userKey)
}

// refresh makes the getter see at least what was applied at the index. What was removed from the pending writes later raised the index.
func (e *evaluation) refresh(index uint64) error {
	if e.getter != nil && e.getterIndex == index {
		return nil
	}
	if err := e.closeGetter(); err != nil {
		return err
	}
	var err error
	if e.getter, err = mvcc.NewGetter(e.r.state); err != nil {
		e.getter = nil
		return err
	}
	e.getterIndex = index
	return nil
}

func (e *evaluation) closeGetter() error {
	if e.getter == nil {
		return nil
	}
	g := e.getter
	e.getter = nil
	return g.Close()
}
