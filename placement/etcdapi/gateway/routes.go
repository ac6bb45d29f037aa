package gateway

import (
	"strings"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/genproto/googleapis/api/annotations"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/tidemarkdb/tidemark/placement/etcdapi/v3electionpb"
	"github.com/tidemarkdb/tidemark/placement/etcdapi/v3lockpb"
)

// route is the method of a path.
type route struct{ service, method string }

// routes maps all paths to their methods.
var routes = func() map[string]route {
	all := make(map[string]route)
	each(pb.File_rpc_proto, func(r route, m protoreflect.MethodDescriptor) {
		rule, _ := proto.GetExtension(m.Options(), annotations.E_Http).(*annotations.HttpRule)
		for _, one := range append(rule.GetAdditionalBindings(), rule) {
			if path := one.GetPost(); path != "" {
				all[path] = r
			}
		}
	})
	// These descriptions have no paths. etcd's paths are regular.
	for prefix, file := range map[string]protoreflect.FileDescriptor{
		"/v3/lock/":     v3lockpb.File_v3lockpb_v3lock_proto,
		"/v3/election/": v3electionpb.File_v3electionpb_v3election_proto,
	} {
		each(file, func(r route, m protoreflect.MethodDescriptor) {
			all[prefix+strings.ToLower(r.method)] = r
		})
	}
	return all
}()

// each calls do for all methods of a file.
func each(file protoreflect.FileDescriptor, do func(route, protoreflect.MethodDescriptor)) {
	for i := range file.Services().Len() {
		service := file.Services().Get(i)
		for j := range service.Methods().Len() {
			m := service.Methods().Get(j)
			do(route{string(service.FullName()), string(m.Name())}, m)
		}
	}
}
