package tables

import (
	"bytes"
	"context"
	"encoding/binary"
	"hash/crc32"

	"google.golang.org/protobuf/proto"

	"github.com/tidemarkdb/tidemark/placement/store/storepb"
)

// SumBytes computes MetaRecord.bytes from all versions and events.
func (r *Reader) SumBytes() (sum uint64, err error) {
	for _, table := range []byte{TableVersion, TableEvent} {
		end := r.End(table)
		for ok := r.Seek(r.Table(table), end); ok; ok = r.Next(end) {
			sum += r.PairBytes()
		}
	}
	return sum, r.Iterator.Error()
}

// PairBytes is the size of the pair on which the iterator stands. It does not read the value.
func (r *Reader) PairBytes() uint64 {
	value := r.Iterator.LazyValue()
	return uint64(len(r.Iterator.Key()) + value.Len())
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// SumOfNothing is the sum of an empty store: as in etcd, the checksum of the name of the table of
// keys. 0 would look like a missing sum.
var SumOfNothing = crc32.Checksum([]byte("key"), castagnoli)

// SumVersions is a checksum of the contents of the versions, independent of their encoding.
func (r *Reader) SumVersions(ctx context.Context, upTo uint64) (sum uint32, err error) {
	var head, last []byte
	end, passed, summed := r.End(TableVersion), 0, false
	for ok := r.Seek(r.Table(TableVersion), end); ok; ok = r.Next(end) {
		if passed++; passed%InterruptEvery == 0 {
			if err := ctx.Err(); err != nil {
				return 0, err
			}
		}
		key, revision, err := DecodeVersionKey(r.Iterator.Key())
		if err != nil {
			return 0, err
		}
		if revision <= r.Meta.Compacted {
			if last != nil && bytes.Equal(key, last) {
				continue // it has a successor at or below the compacted revision
			}
			last = append(last[:0], key...)
		}
		if revision > upTo {
			continue
		}
		kv, err := r.decode(key, revision)
		if err != nil {
			return 0, err
		}
		if kv.Version == 0 && revision < r.Meta.Compacted {
			continue
		}
		summed = true
		head = appendHead(head[:0], kv)
		for _, part := range [][]byte{head, kv.Key, kv.Value} {
			sum = crc32.Update(sum, castagnoli, part)
		}
	}
	if !summed {
		sum = SumOfNothing
	}
	return sum, r.Iterator.Error()
}

func appendHead(to []byte, kv *storepb.KeyValue) []byte {
	for _, n := range []uint64{kv.ModRevision, kv.CreateRevision, kv.Version, uint64(kv.Lease),
		uint64(len(kv.Key)), uint64(len(kv.Value))} {
		to = binary.BigEndian.AppendUint64(to, n)
	}
	return to
}

// SumAll is a checksum of all pairs except the applied index.
func (r *Reader) SumAll(ctx context.Context) (sum uint32, err error) {
	passed, summed := 0, false
	for ok := r.Iterator.First(); ok; ok = r.Iterator.Next() {
		if passed++; passed%InterruptEvery == 0 {
			if err := ctx.Err(); err != nil {
				return 0, err
			}
		}
		if bytes.Equal(r.Iterator.Key(), r.Layout.Applied) {
			continue
		}
		summed = true
		value, err := r.Iterator.ValueAndErr()
		if err != nil {
			return 0, err
		}
		if bytes.Equal(r.Iterator.Key(), r.Layout.Meta) {
			// Members of the previous version do not count bytes.
			meta := CopyMeta(r.Meta)
			meta.Bytes = 0
			if value, err = proto.Marshal(meta); err != nil {
				return 0, err
			}
		}
		head := Number(uint64(len(r.Iterator.Key())))
		head = binary.BigEndian.AppendUint64(head, uint64(len(value)))
		for _, part := range [][]byte{head, r.Iterator.Key()[LocalPrefixLength:], value} {
			sum = crc32.Update(sum, castagnoli, part)
		}
	}
	if !summed {
		sum = SumOfNothing
	}
	return sum, r.Iterator.Error()
}
