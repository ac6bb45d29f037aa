package rpc

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/tidemarkdb/tidemark/rpc/kvpb"
)

// A connection of package transport begins with a hello: one byte that says what it is for, and
// then the identity of the opener. For a client that is an encoded BatchRequest which holds its
// Hello, for a peer an identity.
const (
	helloClient = 'c'
	helloPeer   = 'p'
)

func clientHello(h *kvpb.Hello) ([]byte, error) {
	b, err := (&kvpb.BatchRequest{Hello: h}).MarshalVT()
	if err != nil {
		return nil, fmt.Errorf("hello of a client: %w", err)
	}
	return append([]byte{helloClient}, b...), nil
}

// peerIdentity says which host speaks to which, in which realm of which cluster.
type peerIdentity struct {
	realm             string
	cluster, from, to uint64
}

// hello encodes the identity: three numbers of eight bytes, little endian, and the realm.
func (i peerIdentity) hello() []byte {
	b := []byte{helloPeer}
	for _, number := range []uint64{i.cluster, i.from, i.to} {
		b = binary.LittleEndian.AppendUint64(b, number)
	}
	return append(b, i.realm...)
}

// parseIdentity decodes what hello encodes, but for the first byte.
func parseIdentity(b []byte) (peerIdentity, error) {
	const numbers = 3 * 8
	if len(b) < numbers {
		return peerIdentity{}, errors.New("a peer's hello is cut short")
	}
	number := func(n int) uint64 { return binary.LittleEndian.Uint64(b[8*n:]) }
	return peerIdentity{
		cluster: number(0), from: number(1), to: number(2), realm: string(b[numbers:]),
	}, nil
}
