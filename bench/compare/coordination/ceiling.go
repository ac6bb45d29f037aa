package main

import (
	"context"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"strings"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"google.golang.org/grpc"

	"github.com/tidemarkdb/tidemark/bench/proof/process"
)

// The ceiling is a third subject: a gRPC server that does nothing. It stores no key, writes
// nothing, has no other member, and answers each put and get with the same bytes. No server of the
// etcd API on the same machine can give the client more throughput.

// ceilingName is the name of the subject.
const ceilingName = "ceiling"

// empty implements the services of the ceiling.
type empty struct {
	pb.UnimplementedKVServer
	pb.UnimplementedMaintenanceServer
	found *pb.RangeResponse
}

// theMember is the id of the only member, which leads.
const theMember = 1

// Put implements pb.KVServer.
func (e *empty) Put(context.Context, *pb.PutRequest) (*pb.PutResponse, error) {
	return &pb.PutResponse{Header: e.found.Header}, nil
}

// Range implements pb.KVServer.
func (e *empty) Range(context.Context, *pb.RangeRequest) (*pb.RangeResponse, error) {
	return e.found, nil
}

// Txn implements pb.KVServer.
func (e *empty) Txn(context.Context, *pb.TxnRequest) (*pb.TxnResponse, error) {
	return &pb.TxnResponse{Header: e.found.Header, Succeeded: true}, nil
}

// Status implements pb.MaintenanceServer.
func (e *empty) Status(context.Context, *pb.StatusRequest) (*pb.StatusResponse, error) {
	return &pb.StatusResponse{Header: e.found.Header, Leader: theMember}, nil
}

// serveNothing runs the process of the ceiling.
func serveNothing(address string) error {
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return err
	}
	e := &empty{found: &pb.RangeResponse{
		Header: &pb.ResponseHeader{ClusterId: 1, MemberId: theMember, Revision: 1 << 20, RaftTerm: 2},
		Kvs: []*mvccpb.KeyValue{{Key: []byte(key(1)), Value: []byte(value()), CreateRevision: 1 << 19,
			ModRevision: 1 << 20, Version: 1 << 10}}, Count: 1}}
	server := grpc.NewServer()
	pb.RegisterKVServer(server, e)
	pb.RegisterMaintenanceServer(server, e)
	ended := make(chan os.Signal, 1)
	signal.Notify(ended, os.Interrupt)
	go func() {
		<-ended
		server.Stop()
	}()
	return server.Serve(listener)
}

func startCeiling(_ context.Context, _ *settings, dir string) (*subject, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	addresses, err := process.FreeAddresses(1)
	if err != nil {
		return nil, err
	}
	server, err := process.Start(process.Config{Name: ceilingName, Path: self,
		Args: []string{"-serve-nothing", addresses[0]}, Log: filepath.Join(dir, ceilingName+".log")})
	if err != nil {
		return nil, err
	}
	x := &subject{name: ceilingName, endpoints: addresses, servers: []*process.Process{server}}
	x.close = func() error {
		x.disconnect()
		return server.Kill()
	}
	return x, nil
}

// measuresCeiling reports whether a case has a meaning for a server that does nothing.
func measuresCeiling(name string) bool {
	return strings.HasPrefix(name, "put") || strings.HasPrefix(name, "get")
}
