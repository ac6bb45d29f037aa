package command

import (
	"strings"
	"testing"

	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/rpc/kvpb"
)

// TestCheck: a request is refused for what is wrong with it by itself, in words that name it.
func TestCheck(t *testing.T) {
	d := partitionUpTo('m')
	key := []byte("k")
	put := func(key, value []byte) *kvpb.Request {
		return &kvpb.Request{Command: &kvpb.Request_Put{Put: &kvpb.PutRequest{Key: key, Value: value}}}
	}
	batch := func(o ...*kvpb.WriteOperation) *kvpb.Request {
		return &kvpb.Request{Command: &kvpb.Request_WriteBatch{WriteBatch: &kvpb.WriteBatchRequest{
			Operations: o}}}
	}
	for _, c := range []struct {
		name string
		q    *kvpb.Request
		want string
	}{
		{"put", put(key, nil), ""},
		{"an empty key", put(nil, nil), "empty"},
		{"a key that is too large", put(make([]byte, keys.MaxKeySize+1), nil), "large"},
		{"a value that is too large", put(key, make([]byte, keys.MaxValueSize+1)), "large"},
		{"another partition's key", put([]byte("z"), nil), "outside partition p3"},
		{"an empty batch", batch(), "at least one operation"},
		{"a key twice", batch(&kvpb.WriteOperation{Key: key}, &kvpb.WriteOperation{Key: key}), "twice"},
		{"a deletion with a value", batch(&kvpb.WriteOperation{Key: key, Delete: true, Value: key}),
			"not both"},
		{"a swap without expectation", &kvpb.Request{Command: &kvpb.Request_CompareAndSwap{
			CompareAndSwap: &kvpb.CompareAndSwapRequest{Key: key}}}, "needs an expectation"},
		{"a span upside down", &kvpb.Request{Command: &kvpb.Request_DeleteRange{
			DeleteRange: &kvpb.DeleteRangeRequest{Start: []byte("b"), End: []byte("a")}}},
			"above its end"},
		{"a span elsewhere", &kvpb.Request{Command: &kvpb.Request_DeleteRange{
			DeleteRange: &kvpb.DeleteRangeRequest{Start: []byte("x")}}}, "outside partition p3"},
		{"a prepare of no transaction", &kvpb.Request{
			Command: &kvpb.Request_Prepare{Prepare: &kvpb.PrepareRequest{}}}, "prepare"},
		{"a push of no transaction",
			&kvpb.Request{Command: &kvpb.Request_Push{Push: &kvpb.PushRequest{}}},
			"transaction"},
		{"a resolve of nothing decided",
			&kvpb.Request{Command: &kvpb.Request_Resolve{Resolve: &kvpb.ResolveRequest{
				Resolutions: []*kvpb.Resolution{{Transaction: make([]byte, 16)}}}}}, "resolve"},
	} {
		_, p := Of(c.q).CheckWrite(d, c.q)
		switch {
		case c.want == "" && p != nil:
			t.Errorf("%s: %s", c.name, p.Text)
		case c.want != "" && (p == nil || !strings.Contains(p.Text, c.want)):
			t.Errorf("%s: %+v does not say %q", c.name, p, c.want)
		}
	}
}
