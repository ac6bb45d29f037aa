package request

import (
	"bytes"
	"fmt"
	"unsafe"

	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
	"github.com/tidemarkdb/tidemark/rpc/kvpb"
)

// Checks of a request that need only the request and the partition's descriptor.

// Problem says why a request is invalid on its own.
type Problem struct {
	Code kvpb.ErrorCode
	Text string
}

// Invalid returns the problem of a request that every partition would refuse.
func Invalid(format string, args ...any) *Problem {
	return &Problem{kvpb.ErrorCode_INVALID_ARGUMENT, fmt.Sprintf(format, args...)}
}

func outside(what string, d *clusterpb.Partition) *Problem {
	return &Problem{kvpb.ErrorCode_KEY_OUT_OF_SPAN, what + " is outside partition " +
		keys.PartitionID(d.GetId()).String()}
}

func CheckKey(d *clusterpb.Partition, key []byte) *Problem {
	if err := keys.ValidateUserKey(key); err != nil {
		return Invalid("%v", err)
	}
	if !keys.PartitionContains(d, key) {
		return outside("key "+keys.Pretty(key), d)
	}
	return nil
}

func CheckKeyValue(d *clusterpb.Partition, key, value []byte) *Problem {
	if p := CheckKey(d, key); p != nil {
		return p
	}
	if err := keys.ValidateValue(value); err != nil {
		return Invalid("key %s: %v", keys.Pretty(key), err)
	}
	return nil
}

// CheckSpan accepts every span that overlaps the partition: the rest of the span is elsewhere.
// Bounds need not be existing keys, so they may be empty, and a little longer than a key.
func CheckSpan(d *clusterpb.Partition, start, end []byte) *Problem {
	for _, bound := range [...][]byte{start, end} {
		if len(bound) > keys.MaxKeySize+1 {
			return Invalid("%v: the bound %s of a span; a key has at most %d bytes",
				keys.ErrKeyTooLarge, keys.Pretty(bound), keys.MaxKeySize)
		}
	}
	if len(end) > 0 && bytes.Compare(start, end) > 0 {
		return Invalid("the span's start %s is above its end %s", keys.Pretty(start), keys.Pretty(end))
	}
	user := keys.Span{Start: start, End: end}
	if !user.Empty() && !user.Overlaps(keys.PartitionUserSpan(d)) {
		return outside("the span "+user.String(), d)
	}
	return nil
}

// Refuse returns an error response to a request.
func Refuse(q *kvpb.Request, code kvpb.ErrorCode, format string, args ...any) *kvpb.Response {
	return &kvpb.Response{Id: q.GetId(),
		Error: &kvpb.Error{Code: code, Message: fmt.Sprintf(format, args...)}}
}

// InternalSpan returns the part of a span of user keys that lies in the partition, in internal
// keys.
func InternalSpan(d *clusterpb.Partition, start, end []byte) keys.Span {
	return keys.InternalSpan(d, keys.Span{Start: start, End: end})
}

// Text returns a string that aliases b, which must not be changed as long as the string lives.
func Text(b []byte) string { return unsafe.String(unsafe.SliceData(b), len(b)) }

// Response returns the answer to a request that has the problem.
func (p *Problem) Response(q *kvpb.Request) *kvpb.Response {
	return Refuse(q, p.Code, "%s", p.Text)
}

// CheckTTL validates the lifetime that a request asks for. deletes says that the request deletes
// the key.
func CheckTTL(key []byte, asked int64, deletes bool) *Problem {
	if asked != 0 && deletes {
		return Invalid("key %s: a deletion has no time to live", keys.Pretty(key))
	}
	if err := keys.Lifetime(asked).Validate(); err != nil {
		return Invalid("key %s: %v", keys.Pretty(key), err)
	}
	return nil
}
