package limit

import (
	"encoding/binary"

	"golang.org/x/net/http2"
)

// frameHeaderBytes is the length of a header of an HTTP/2 frame: the length of what follows (3
// bytes), type, flags, and stream (4 bytes). See RFC 9113, section 4.1.
const frameHeaderBytes = 9

// frames parses the HTTP/2 frames of a connection as they are read, to tell the content of DATA
// frames from the rest. The zero value is at the beginning of a frame.
type frames struct {
	// skip is how many bytes remain before the next header. data is set if they belong to a DATA
	// frame.
	skip int
	data bool
	// header holds the bytes of the next header read so far.
	header [frameHeaderBytes]byte
	have   int
}

// content parses the next bytes, and returns how many of them are in DATA frames.
func (f *frames) content(b []byte) (n int64) {
	for len(b) > 0 {
		if f.skip > 0 {
			k := min(f.skip, len(b))
			if f.data {
				n += int64(k)
			}
			f.skip -= k
			b = b[k:]
			continue
		}
		k := copy(f.header[f.have:], b)
		f.have += k
		b = b[k:]
		if f.have == frameHeaderBytes {
			f.have = 0
			f.skip = int(binary.BigEndian.Uint32(f.header[:4]) >> 8)
			f.data = http2.FrameType(f.header[3]) == http2.FrameData
		}
	}
	return n
}
