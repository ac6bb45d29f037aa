package command

import (
	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
	"github.com/tidemarkdb/tidemark/rpc/kvpb"
)

// CompareAndSwap writes if the key is as expected.
var CompareAndSwap = register((*kvpb.Request_CompareAndSwap)(nil), Command{
	Name:         "compare_and_swap",
	Way:          InQueue,
	Body:         func(q *kvpb.Request) bool { return q.GetCompareAndSwap() != nil },
	Footprint:    func(q *kvpb.Request) Footprint { return point(q.GetCompareAndSwap().Key) },
	Foreground:   always,
	MayDoNothing: always,
	CheckWrite: func(d *clusterpb.Partition, q *kvpb.Request) (Writing, *Problem) {
		c := q.GetCompareAndSwap()
		return Writing{Size: len(c.GetKey()) + len(c.GetNewValue())}, checkCompareAndSwap(d, c)
	},
})

func checkCompareAndSwap(d *clusterpb.Partition, c *kvpb.CompareAndSwapRequest) *Problem {
	if p := checkKeyValue(d, c.GetKey(), c.GetNewValue()); p != nil {
		return p
	}
	switch e := c.GetExpected().(type) {
	case *kvpb.CompareAndSwapRequest_Absent:
		if !e.Absent {
			return Invalid("key %s: `absent` can only be expected to be true", keys.Pretty(c.GetKey()))
		}
	case *kvpb.CompareAndSwapRequest_Version:
		if e.Version == nil {
			return Invalid("key %s: the expected version is empty", keys.Pretty(c.GetKey()))
		}
	case *kvpb.CompareAndSwapRequest_Value:
	default:
		return Invalid("key %s: a compare-and-swap needs an expectation: absent, a value, or a version", keys.Pretty(c.GetKey()))
	}
	if c.GetDelete() && len(c.GetNewValue()) > 0 {
		return Invalid("key %s: a compare-and-swap either deletes or writes a new value, not both", keys.Pretty(c.GetKey()))
	}
	return nil
}
