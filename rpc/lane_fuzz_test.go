package rpc

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/tidemarkdb/tidemark/rpc/peerpb"
)

// FuzzLane: whatever bytes come on a peer's lane, they are read as messages or end it, and take no
// more memory than has come.
func FuzzLane(f *testing.F) {
	raw, err := proto.Marshal(&peerpb.MessageBatch{Ping: &peerpb.HostPing{Incarnation: 1}, Messages: []*peerpb.RaftMessage{{Group: 1, Type: 3, Entries: []*peerpb.Entry{{}, nil, {Data: []byte("x")}}}}})
	if err != nil {
		f.Fatal(err)
	}
	framed := append(binary.LittleEndian.AppendUint32(nil, uint32(len(raw))), raw...)
	f.Add(append(framed, framed...))
	f.Add([]byte{0xff, 0xff, 0xff, 0xff})
	f.Add([]byte{0, 0, 0, 5, 1, 2})
	f.Fuzz(func(t *testing.T, data []byte) {
		r := bufio.NewReaderSize(bytes.NewReader(data), laneBuffer)
		for total := 0; ; {
			message, err := nextMessage(r)
			if err != nil {
				return
			}
			if total += len(message); total > len(data) {
				t.Fatalf("%d bytes of %d", total, len(data))
			}
			batch := new(peerpb.MessageBatch)
			if unmarshalOwned(message, batch) != nil {
				continue
			}
			for _, m := range batch.GetMessages() {
				for _, e := range m.GetEntries() {
					_ = e.GetData()
				}
			}
		}
	})
}
