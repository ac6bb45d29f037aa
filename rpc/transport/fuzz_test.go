package transport

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"testing"
)

// FuzzFrames: whatever bytes come on a connection, they are read as frames or end it, and take no
// more memory than has come.
func FuzzFrames(f *testing.F) {
	message := append(binary.LittleEndian.AppendUint32(nil, 3), "abc"...)
	f.Add(append(message, appendControl(message, controlKeepalive, nil)...))
	f.Add([]byte{0xff, 0xff, 0xff, 0xff})
	f.Add([]byte{0, 0, 0, 5, 1, 2})
	f.Add(appendControl(nil, controlEnded, []byte{14, 'x'}))
	f.Fuzz(func(t *testing.T, data []byte) {
		r := bufio.NewReaderSize(bytes.NewReader(data), bufferBytes)
		for total := 0; ; {
			content, control, err := readFrame(r, nil)
			if err != nil {
				return
			}
			if total += len(content); total > len(data) || control && len(content) == 0 {
				t.Fatalf("%d bytes of %d", total, len(data))
			}
			if control {
				_ = reasonOf(content[1:]).Err().Error()
			}
		}
	})
}
