package proposal

import (
	"encoding/binary"
	"fmt"
)

// The representation of a Pebble batch: 8 bytes sequence number (zero here), 4 bytes count, then
// for each operation its kind, and key and value each with its length before it.
const (
	batchHeaderLength = 12
	operationDelete   = 0
	operationSet      = 1
)

// WalkBatch calls visit for each operation of a batch. It is strict where Pebble's own reader takes
// well-formedness for granted. value is nil for a deletion; key and value alias the batch.
func WalkBatch(batch []byte, visit func(deletion bool, key, value []byte) error) error {
	if len(batch) == 0 {
		return nil
	}
	if len(batch) < batchHeaderLength || binary.LittleEndian.Uint64(batch) != 0 {
		return fmt.Errorf("%w: bad batch header", ErrMalformed)
	}
	count := binary.LittleEndian.Uint32(batch[8:])
	d := Decoder{Data: batch[batchHeaderLength:]}
	n := uint32(0)
	for ; len(d.Data) > 0; n++ {
		kind := d.Data[0]
		d.Data = d.Data[1:]
		key := d.Bytes()
		var value []byte
		switch kind {
		case operationSet:
			value = d.Bytes()
		case operationDelete:
		default:
			return fmt.Errorf("%w: batch operation of kind %d", ErrMalformed, kind)
		}
		if d.Bad || len(key) == 0 {
			return fmt.Errorf("%w: batch operation %d is cut off", ErrMalformed, n)
		}
		if err := visit(kind == operationDelete, key, value); err != nil {
			return err
		}
	}
	if n != count {
		return fmt.Errorf("%w: batch holds %d operations and says %d", ErrMalformed, n, count)
	}
	return nil
}
