package kv

import (
	"bytes"

	"github.com/tidemarkdb/tidemark/hlc"
	"github.com/tidemarkdb/tidemark/rpc"
	"github.com/tidemarkdb/tidemark/rpc/kvpb"
)

// Pair is a key with its value and the value's version. Its slices belong to whoever received it.
type Pair struct {
	Key   []byte
	Value []byte
	// Version is the timestamp of the write; zero if the key has no value.
	Version Timestamp
}

// Exists reports whether the key has a value. Only BatchGet and CompareAndSwap return pairs of which that is not certain.
func (p Pair) Exists() bool { return !p.Version.IsZero() }

// clone copies and keeps nil.
func clone(b []byte) []byte { return bytes.Clone(b) }

// pairOf copies a pair out of the message that brought it, so that a kept pair does not keep the message; with one
// allocation, and capacities that keep appends to one slice from running into the other.
func pairOf(p *rpc.Row) Pair {
	k, n := len(p.Key), len(p.Key)+len(p.Value)
	buf := make([]byte, n)
	copy(buf, p.Key)
	copy(buf[k:], p.Value)
	return Pair{Key: buf[:k:k], Value: buf[k:n:n], Version: p.Version}
}

// owned copies a value out of the message that brought it. It is never nil: an empty value is a value.
func owned(value []byte) []byte {
	out := make([]byte, len(value))
	copy(out, value)
	return out
}

func fromWire(ts *kvpb.Timestamp) hlc.Timestamp { return rpc.FromTimestamp(ts) }
func toWire(ts hlc.Timestamp) *kvpb.Timestamp   { return rpc.ToTimestamp(ts) }
