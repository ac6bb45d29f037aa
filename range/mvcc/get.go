package mvcc

import (
	"bytes"
	"errors"
	"fmt"
	"sync"

	"github.com/cockroachdb/pebble/v2"
	"github.com/tidemarkdb/tidemark/hlc"
	"github.com/tidemarkdb/tidemark/range/engine"
	"github.com/tidemarkdb/tidemark/range/keys"
)

// UncertaintyError is returned by a read that met a version which may have been written, in real
// time, before the read began, although its timestamp is higher; or a version which another client
// may have seen as expired before. The caller repeats the read at Timestamp.
type UncertaintyError struct {
	// Key is the internal key.
	Key []byte
	// Timestamp is the timestamp of the newest version in the uncertainty interval, or the expiry.
	Timestamp hlc.Timestamp
	// Expiry is set if the interval contains the expiry of the version that the read would see.
	Expiry bool
}

func (e *UncertaintyError) Error() string {
	if e.Expiry {
		return fmt.Sprintf("key %s has a value that expires at %s, inside the uncertainty interval of "+
			"the read", keys.Pretty(e.Key), e.Timestamp)
	}
	return fmt.Sprintf("key %s has a version at %s, inside the uncertainty interval of the read",
		keys.Pretty(e.Key), e.Timestamp)
}

// pointOptions are for iterators that only seek by prefix. Pebble copies them.
var pointOptions = &pebble.IterOptions{}

// Getter reads single keys through one iterator, which is cheaper than one for each key. It sees
// the state as of Open. One goroutine may use it at a time. The caller closes it, and may open it
// again.
type Getter struct {
	iter *pebble.Iterator
	seek []byte
}

// NewGetter returns a getter over a reader.
func NewGetter(r engine.Reader) (*Getter, error) {
	g := new(Getter)
	if err := g.Open(r); err != nil {
		return nil, err
	}
	return g, nil
}

// Open opens a getter on a reader.
func (g *Getter) Open(r engine.Reader) (err error) {
	if g.iter, err = r.NewIter(pointOptions); err != nil {
		return fmt.Errorf("read versions: %w", err)
	}
	return nil
}

// Close releases the iterator.
func (g *Getter) Close() error {
	iter := g.iter
	g.iter = nil
	return iter.Close()
}

// first positions the iterator on the newest version at or below at.
func (g *Getter) first(key []byte, at hlc.Timestamp) bool {
	// The zero timestamp would seek to the key itself, which sorts before all its versions.
	if at.Wall < 0 || at.IsZero() {
		return false
	}
	g.seek = keys.AppendTimestamp(keys.AppendDataKey(g.seek[:0], key), at)
	return g.iter.SeekPrefixGE(g.seek)
}

// current decodes the version on which the iterator stands. The version's value is valid until the
// iterator moves.
func (g *Getter) current() (Version, error) {
	_, v, err := decode(g.iter)
	return v, err
}

// View is Get without a copy: the value is valid until the getter's next call.
func (g *Getter) View(key []byte, at hlc.Timestamp) (Version, bool, error) {
	v, found, err := g.stored(key, at)
	v.asOf(at)
	return v, found, err
}

// Newest returns the newest version as it is stored, whether it has expired or not. The value is
// valid until the getter's next call.
func (g *Getter) Newest(key []byte) (Version, bool, error) {
	return g.stored(key, hlc.MaxTimestamp)
}

// stored returns the newest version at or below at as it is stored.
func (g *Getter) stored(key []byte, at hlc.Timestamp) (Version, bool, error) {
	if !g.first(key, at) {
		return Version{}, false, readError(key, g.iter.Error())
	}
	v, err := g.current()
	return v, err == nil, err
}

// Get returns the newest version at or below at, which may be a tombstone; an expired value is
// returned with KindExpired. The value is a copy.
func (g *Getter) Get(key []byte, at hlc.Timestamp) (Version, bool, error) {
	v, found, err := g.View(key, at)
	v.Value = bytes.Clone(v.Value)
	return v, found, err
}

// Limits are the upper ends of a read's uncertainty intervals, which begin above the read's
// timestamp. A zero limit means that nothing is uncertain.
type Limits struct {
	// Versions is the limit for versions: a version at or below it is uncertain.
	Versions hlc.Timestamp
	// Expiries is the limit for expiries: an expiry at or below it, of the value that the read
	// sees, is uncertain.
	Expiries hlc.Timestamp
}

// ViewUncertain is View, but returns an *UncertaintyError if a version or an expiry is uncertain.
func (g *Getter) ViewUncertain(key []byte, at hlc.Timestamp, limits Limits) (Version, bool, error) {
	v, found, err := g.stored(key, hlc.Max(at, limits.Versions))
	if found && at.Less(v.Timestamp) {
		return Version{}, false, &UncertaintyError{Key: bytes.Clone(key), Timestamp: v.Timestamp}
	}
	if expiry, uncertain := v.expiresWithin(at, limits.Expiries); uncertain {
		return Version{}, false,
			&UncertaintyError{Key: bytes.Clone(key), Timestamp: expiry, Expiry: true}
	}
	v.asOf(at)
	return v, found, err
}

// GetUncertain is ViewUncertain with a copy of the value.
func (g *Getter) GetUncertain(key []byte, at hlc.Timestamp, limits Limits) (Version, bool, error) {
	v, found, err := g.ViewUncertain(key, at, limits)
	v.Value = bytes.Clone(v.Value)
	return v, found, err
}

// FindRequest returns the version that a request wrote, if its timestamp is above after. The value
// is a copy. The zero request is never found.
func (g *Getter) FindRequest(key []byte, after hlc.Timestamp, id RequestID) (Version, bool, error) {
	if id.IsZero() {
		return Version{}, false, nil
	}
	for ok := g.first(key, hlc.MaxTimestamp); ok; ok = g.iter.Next() {
		v, err := g.current()
		if err != nil {
			return Version{}, false, err
		}
		if v.Timestamp.LessEq(after) {
			return Version{}, false, nil
		}
		if v.Request == id {
			v.Value = bytes.Clone(v.Value)
			return v, true, nil
		}
	}
	return Version{}, false, readError(key, g.iter.Error())
}

var getters = sync.Pool{New: func() any { return new(Getter) }}

// once runs a read through a getter of its own.
func once(r engine.Reader, read func(*Getter) (Version, bool, error)) (Version, bool, error) {
	iter, err := r.NewIter(pointOptions)
	if err != nil {
		return Version{}, false, fmt.Errorf("read versions: %w", err)
	}
	g := getters.Get().(*Getter)
	g.iter = iter
	v, found, err := read(g)
	g.iter = nil
	getters.Put(g)
	if closeErr := iter.Close(); err == nil && closeErr != nil {
		return Version{}, false, fmt.Errorf("read versions: %w", closeErr)
	}
	return v, found, err
}

// Get is Getter.Get with a getter of its own.
func Get(r engine.Reader, key []byte, at hlc.Timestamp) (Version, bool, error) {
	return once(r, func(g *Getter) (Version, bool, error) { return g.Get(key, at) })
}

// Newest is Getter.Newest with a getter of its own, and with a copy of the value.
func Newest(r engine.Reader, key []byte) (Version, bool, error) {
	return once(r, func(g *Getter) (Version, bool, error) {
		v, found, err := g.Newest(key)
		v.Value = bytes.Clone(v.Value)
		return v, found, err
	})
}

// GetUncertain is Getter.GetUncertain with a getter of its own.
func GetUncertain(r engine.Reader, key []byte, at hlc.Timestamp, limits Limits) (Version, bool,
	error) {
	return once(r, func(g *Getter) (Version, bool, error) { return g.GetUncertain(key, at, limits) })
}

// decode returns the version on which an iterator stands, and its internal key. Both are valid
// until the iterator moves.
func decode(iter *pebble.Iterator) ([]byte, Version, error) {
	stateKey := iter.Key()
	key, ts, err := keys.DecodeVersioned(stateKey)
	if err != nil || ts.IsZero() {
		if err == nil {
			err = errNoTimestamp
		}
		return nil, Version{}, corrupt(stateKey, err)
	}
	stored, err := iter.ValueAndErr()
	if err != nil {
		return nil, Version{}, readError(key, err)
	}
	h, value, err := DecodeHeader(stored)
	if err != nil {
		return nil, Version{}, corrupt(stateKey, err)
	}
	v := Version{Timestamp: ts, Kind: h.Kind, Request: h.Request, CommitWait: h.CommitWait,
		Expires: h.Expires, Value: value}
	return key, v, nil
}

var errNoTimestamp = errors.New("it has no timestamp")

func readError(key []byte, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("read versions of %s: %w", keys.Pretty(key), err)
}
