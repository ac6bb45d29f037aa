package forward

import (
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	"github.com/tidemarkdb/tidemark/rpc/coordpb"
)

// method is a method whose calls are forwarded.
type method struct {
	service, name string
	// full is "/service/name".
	full string
	// at is the method's index in the description of its service.
	at            int
	input, output protoreflect.MessageType
	// reads is set if the method changes nothing. stream is set if a call has several messages in
	// either direction. waits is set if a call may wait for other clients. ofLeader is set if calls
	// are for the member that leads.
	reads, stream, waits, ofLeader bool
}

func methodOf(service, name string, at int) *method {
	found, err := protoregistry.GlobalFiles.FindDescriptorByName(
		protoreflect.FullName(service + "." + name))
	d, ok := found.(protoreflect.MethodDescriptor)
	if err != nil || !ok {
		panic("forward: no descriptor of the method " + service + "." + name)
	}
	full := "/" + service + "/" + name
	return &method{service: service, name: name, full: full, at: at, input: typeOf(d.Input()),
		output: typeOf(d.Output()), reads: reads[full], waits: waits[full], ofLeader: ofLeader[full],
		stream: d.IsStreamingClient() || d.IsStreamingServer()}
}

func typeOf(d protoreflect.MessageDescriptor) protoreflect.MessageType {
	t, err := protoregistry.GlobalTypes.FindMessageByName(d.FullName())
	if err != nil {
		panic("forward: no type of the message " + string(d.FullName()))
	}
	return t
}

// ofLeader lists the methods whose calls are for the member that leads: methods that only the
// leader serves, and Status, with which clients look for the leader among their endpoints.
var ofLeader = map[string]bool{
	pb.Maintenance_MoveLeader_FullMethodName: true,
	pb.Maintenance_Status_FullMethodName:     true,
}

// reads lists the methods that change nothing.
var reads = map[string]bool{
	pb.KV_Range_FullMethodName:                 true,
	pb.Lease_LeaseTimeToLive_FullMethodName:    true,
	pb.Lease_LeaseLeases_FullMethodName:        true,
	pb.Cluster_MemberList_FullMethodName:       true,
	pb.Maintenance_Status_FullMethodName:       true,
	pb.Maintenance_Hash_FullMethodName:         true,
	pb.Maintenance_HashKV_FullMethodName:       true,
	pb.Auth_Authenticate_FullMethodName:        true,
	pb.Auth_AuthStatus_FullMethodName:          true,
	pb.Auth_UserGet_FullMethodName:             true,
	pb.Auth_UserList_FullMethodName:            true,
	pb.Auth_RoleGet_FullMethodName:             true,
	pb.Auth_RoleList_FullMethodName:            true,
	coordpb.Permissions_Get_FullMethodName:     true,
	coordpb.Import_State_FullMethodName:        true,
	coordpb.Clock_Read_FullMethodName:          true,
	grpc_health_v1.Health_Check_FullMethodName: true,
	grpc_health_v1.Health_List_FullMethodName:  true,
	"/v3electionpb.Election/Leader":            true,
}

// waits lists the methods whose calls may wait for other clients.
var waits = map[string]bool{
	"/v3lockpb.Lock/Lock":             true,
	"/v3electionpb.Election/Campaign": true,
}
