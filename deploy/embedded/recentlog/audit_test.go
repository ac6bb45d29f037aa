package recentlog_test

import (
	"context"
	"log/slog"
	"reflect"
	"strings"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/tidemarkdb/tidemark/deploy/embedded/recentlog"
	"github.com/tidemarkdb/tidemark/placement/etcdapi/authorize"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
	"github.com/tidemarkdb/tidemark/rpc/coordpb"
)

// requests are the types of the requests of all audited services. Requests of watches are messages
// of a stream.
func requests() []reflect.Type {
	all := []reflect.Type{reflect.TypeFor[*pb.WatchCreateRequest]()}
	for _, service := range []reflect.Type{reflect.TypeFor[pb.KVServer](),
		reflect.TypeFor[pb.LeaseServer](), reflect.TypeFor[pb.ClusterServer](),
		reflect.TypeFor[pb.MaintenanceServer](), reflect.TypeFor[pb.AuthServer](),
		reflect.TypeFor[coordpb.PermissionsServer](), reflect.TypeFor[clusterpb.ClusterServer]()} {
		for i := range service.NumMethod() {
			for in := range service.Method(i).Type.Ins() {
				if in.Kind() == reflect.Pointer && in.Elem().Kind() == reflect.Struct {
					all = append(all, in)
				}
			}
		}
	}
	return all
}

// fill sets all exported fields of bytes of a message, and of the messages in it.
func fill(v reflect.Value, depth int) {
	switch {
	case depth == 0 || !v.CanSet():
	case v.Type() == reflect.TypeFor[[]byte]():
		v.SetBytes([]byte("unspeakable"))
	case v.Kind() == reflect.Pointer && v.Type().Elem().Kind() == reflect.Struct:
		v.Set(reflect.New(v.Type().Elem()))
		for i := range v.Elem().NumField() {
			fill(v.Elem().Field(i), depth-1)
		}
	case v.Kind() == reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		fill(v.Index(0), depth-1)
	}
}

// No audited request has a field of bytes that the lines show: such fields are keys or values.
func TestAuditLinesHaveNoKeys(t *testing.T) {
	var lines recentlog.Lines
	var log strings.Builder
	now := time.Now()
	guard, err := authorize.New(nil, authorize.Config{
		Logger: slog.New(recentlog.NewHandler(slog.NewTextHandler(&log, nil), &lines)),
		Now:    func() time.Time { return now }})
	if err != nil {
		t.Fatal(err)
	}
	all := requests()
	for _, kind := range all {
		request := reflect.New(kind).Elem()
		fill(request, 5)
		now = now.Add(time.Minute)
		guard.Audit(context.Background(), &authorize.Call{Method: "/of/" + kind.Elem().Name(),
			Request: request.Interface()}, status.Error(codes.PermissionDenied, "no"))
	}
	text := string(lines.Text())
	if n := strings.Count(text, "\n"); n != len(all) || n < 50 {
		t.Errorf("%d lines for %d requests", n, len(all))
	}
	if n := strings.Count(log.String(), "range_end=unspeakable"); n < 5 {
		t.Errorf("%d ends of ranges are in the log", n)
	}
	for line := range strings.Lines(text) {
		if strings.Contains(line, "unspeakable") {
			t.Errorf("a key is in a line: %s", line)
		}
	}
}
