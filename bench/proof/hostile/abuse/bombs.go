package abuse

import (
	"bytes"
	"context"
	"encoding/binary"
	"sync"

	"github.com/golang/snappy"
	"google.golang.org/grpc"

	"github.com/tidemarkdb/tidemark/rpc/block"
	"github.com/tidemarkdb/tidemark/rpc/kvpb"
)

// bombsAtOnce is the number of concurrent messages that are small on the wire and large in memory.
const bombsAtOnce = 100

// Bombs says whether an act makes servers use much memory for few bytes.
func Bombs(name string) bool {
	return name == "empty operations" || name == "empty calls" || name == "packed loads"
}

// encoded is an encoded message. encodedCodec sends it unchanged.
type encoded []byte

type encodedCodec struct{}

// Name implements encoding.Codec.
func (encodedCodec) Name() string { return "proto" }

// Marshal implements encoding.Codec.
func (encodedCodec) Marshal(v any) ([]byte, error) { return v.(encoded), nil }

// Unmarshal implements encoding.Codec.
func (encodedCodec) Unmarshal([]byte, any) error { return nil }

// emptyCalls sends transactions of the etcd API with a MiB of empty operations.
func emptyCalls(ctx context.Context, s *stranger) error {
	const operation = "\x12\x00" // an entry of the list success, without content
	bomb := encoded(bytes.Repeat([]byte(operation), 520_000))
	var conns []*grpc.ClientConn
	for range 10 {
		conn, err := s.grpc(ctx)
		if err != nil {
			return err
		}
		defer conn.Close()
		conns = append(conns, conn)
	}
	var calls sync.WaitGroup
	for i := range bombsAtOnce {
		calls.Go(func() {
			for ctx.Err() == nil {
				var answer encoded
				_ = conns[i%len(conns)].Invoke(ctx, "/etcdserverpb.KV/Txn", bomb, &answer,
					grpc.ForceCodec(encodedCodec{}))
			}
		})
	}
	calls.Wait()
	return nil
}

// packedLoads sends blocks of records that are twenty times as large when unpacked.
func packedLoads(ctx context.Context, s *stranger) error {
	b := []byte{1, 1} // version and form
	b = binary.AppendUvarint(b, 1)
	b = binary.AppendUvarint(b, block.MaxBody)
	b = append(b, snappy.Encode(nil, make([]byte, block.MaxBody))...)
	var loads sync.WaitGroup
	for range bombsAtOnce {
		client := s.random.Uint64() | 1
		loads.Go(func() {
			for stream := uint64(1); ctx.Err() == nil; stream++ {
				conn, err := s.open(ctx, clientHello(client, stream))
				if err != nil {
					return
				}
				for id := range uint64(64) { // this server leads some of these partitions, in some term
					q := &kvpb.Request{Id: id + 1, Sequence: id + 1, Partition: 100 + id%16, Term: 1 + id/16,
						Generation: 1, Command: &kvpb.Request_Load{Load: &kvpb.LoadRequest{First: []byte("a"),
							Last: []byte("b"), Block: b, Records: 1}}}
					if _, err := conn.Write(message(q)); err != nil {
						break
					}
				}
				_ = conn.Close()
			}
		})
	}
	loads.Wait()
	return nil
}
