package block

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/golang/snappy"

	"github.com/tidemarkdb/tidemark/range/keys"
)

// ErrMalformed is wrapped by every error of a Reader.
var ErrMalformed = errors.New("malformed block of records")

// Record is a key with its value. Lifetime is DefaultLifetime, Forever or a time of expiry, never a
// time to live.
type Record struct {
	Key, Value []byte
	Lifetime   keys.Lifetime
}

// Reader returns the records of a block in order. It is for one goroutine.
type Reader struct {
	body, rest []byte
	// lives holds the lifetimes of all records, restLives those of the records that were not read
	// yet; nil in a block without lifetimes.
	lives, restLives []byte

	key     []byte
	records int
	read    int
	size    uint64
}

// Open begins to read a block, which must not change until the last call of Next.
func Open(data []byte) (*Reader, error) {
	if len(data) < 2 || data[0] < versionPlain || data[0] > versionLifetimes ||
		data[1] > formSnappy {
		return nil, fmt.Errorf("%w: it has no header that this server understands; was it made by a "+
			"newer one?", ErrMalformed)
	}
	form, rest := data[1], data[2:]
	records, n := uvarint(rest)
	size, m := uvarint(rest[n:])
	if n == 0 || m == 0 {
		return nil, fmt.Errorf("%w: its header is cut off", ErrMalformed)
	}
	rest = rest[n+m:]
	lives := uint64(0)
	if data[0] == versionLifetimes {
		var k int
		if lives, k = uvarint(rest); k == 0 || lives > size {
			return nil, fmt.Errorf("%w: its header is cut off", ErrMalformed)
		}
		rest = rest[k:]
	}
	if records > MaxRecords || size > MaxBody {
		return nil, fmt.Errorf("%w: it says that it has %d records in %d bytes; %d records and %d MiB "+
			"are the limit", ErrMalformed, records, size, MaxRecords, MaxBody>>20)
	}
	if form == formSnappy {
		if got, err := snappy.DecodedLen(rest); err != nil || uint64(got) != size {
			return nil, fmt.Errorf("%w: its body is not the %d bytes that it says", ErrMalformed, size)
		}
		var err error
		if rest, err = snappy.Decode(nil, rest); err != nil {
			return nil, fmt.Errorf("%w: %w", ErrMalformed, err)
		}
	}
	if uint64(len(rest)) != size {
		return nil, fmt.Errorf("%w: its body has %d bytes, and it says %d", ErrMalformed, len(rest),
			size)
	}
	r := &Reader{body: rest, records: int(records)}
	if data[0] == versionLifetimes {
		at := len(rest) - int(lives)
		r.body, r.lives = rest[:at], rest[at:len(rest):len(rest)]
	}
	r.Rewind()
	return r, nil
}

// Decoded returns how many bytes a Reader allocates for the body, according to the header: at most
// MaxBody, and 0 if Open refuses the header, or the body is stored uncompressed.
func Decoded(data []byte) int {
	if len(data) < 2 || data[0] < versionPlain || data[0] > versionLifetimes || data[1] != formSnappy {
		return 0
	}
	rest := data[2:]
	_, n := uvarint(rest)
	size, m := uvarint(rest[n:])
	if n == 0 || m == 0 || size > MaxBody {
		return 0
	}
	return int(size)
}

// Records returns the number of records, according to the header.
func (r *Reader) Records() int { return r.records }

// Size returns the total size of the keys and values read so far.
func (r *Reader) Size() uint64 { return r.size }

// Body returns the length of the records in the body.
func (r *Reader) Body() int { return len(r.body) }

// Rewind starts again at the first record.
func (r *Reader) Rewind() {
	r.rest, r.restLives, r.key, r.read, r.size = r.body, r.lives, r.key[:0], 0, 0
}

// Next returns the next record; ok is false at the end, and with an error. The key is valid until
// the next call, the value as long as the reader.
func (r *Reader) Next() (record Record, ok bool, err error) {
	if len(r.rest) == 0 {
		switch {
		case r.read != r.records:
			return Record{}, false, fmt.Errorf("%w: it has %d records, and says %d", ErrMalformed, r.read,
				r.records)
		case len(r.restLives) > 0:
			return Record{}, false, fmt.Errorf("%w: it has more lifetimes than records", ErrMalformed)
		}
		return Record{}, false, nil
	}
	common, a := uvarint(r.rest)
	length, b := uvarint(r.rest[a:])
	of, c := uvarint(r.rest[a+b:])
	data := r.rest[a+b+c:]
	if a == 0 || b == 0 || c == 0 || common > uint64(len(r.key)) || length > uint64(len(data)) ||
		of > uint64(len(data))-length {
		return Record{}, false, fmt.Errorf("%w: record %d is cut off", ErrMalformed, r.read)
	}
	if common+length > keys.MaxKeySize {
		return Record{}, false, fmt.Errorf("%w: record %d: %w", ErrMalformed, r.read,
			keys.ErrKeyTooLarge)
	}
	rest := data[:length]
	value := data[length : length+of : length+of]
	// The shared prefixes are equal, so the rests decide the order.
	if r.read > 0 && bytes.Compare(rest, r.key[common:]) <= 0 {
		return Record{}, false, fmt.Errorf("%w: its keys are not in order, or one comes twice, "+
			"behind %s", ErrMalformed, keys.Pretty(r.key))
	}
	r.key = append(r.key[:common], rest...)
	if err := check(r.key, value); err != nil {
		return Record{}, false, fmt.Errorf("%w: %w", ErrMalformed, err)
	}
	r.rest = data[length+of:]
	if r.read++; r.read > r.records {
		return Record{}, false, fmt.Errorf("%w: it has more records than the %d that it says",
			ErrMalformed, r.records)
	}
	record = Record{Key: r.key, Value: value}
	if r.lives != nil {
		lifetime, n := varint(r.restLives)
		if record.Lifetime = keys.Lifetime(lifetime); n == 0 || lifetime > 0 {
			return Record{}, false, fmt.Errorf("%w: record %d has no valid lifetime", ErrMalformed,
				r.read-1)
		}
		r.restLives = r.restLives[n:]
	}
	r.size += length + common + of
	return record, true, nil
}

// varint reads a signed number in its shortest form from the front of b; n is 0 if there is none.
func varint(b []byte) (v int64, n int) {
	u, n := uvarint(b)
	return int64(u>>1) ^ -int64(u&1), n
}

// uvarint reads an unsigned number in its shortest form from the front of b; n is 0 if there is
// none.
func uvarint(b []byte) (v uint64, n int) {
	v, n = binary.Uvarint(b)
	if n <= 0 || n > 1 && b[n-1] == 0 {
		return 0, 0
	}
	return v, n
}
