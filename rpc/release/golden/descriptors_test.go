package golden

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/descriptorpb"

	"github.com/tidemarkdb/tidemark/placement/bootstrap/bootstrappb"
	"github.com/tidemarkdb/tidemark/placement/server/serverpb"
	"github.com/tidemarkdb/tidemark/placement/store/storepb"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
	"github.com/tidemarkdb/tidemark/rpc/coordpb"
	"github.com/tidemarkdb/tidemark/rpc/kvpb"
	"github.com/tidemarkdb/tidemark/rpc/peerpb"
	"github.com/tidemarkdb/tidemark/rpc/release"
)

// The descriptors of the messages and services of each release are in images, one for each module
// of protocol buffers. `make lint` has `buf breaking` compare the present ones with them. Here it
// is checked that whatever was added since the last tagged release has a line in additions: with
// the gate behind which it is sent or stored, or, behind a hyphen, with the reason why it needs
// none:
//
//	tidemark.cluster.v1.Node.example some-gate
//	tidemark.cluster.v1.Node.example - a hint, which earlier versions ignore

const additions = "testdata/additions.txt"

// modules are the modules of protocol buffers.
var modules = map[string][]protoreflect.FileDescriptor{
	"rpc.binpb": {clusterpb.File_clusterpb_cluster_proto, coordpb.File_coordpb_coord_proto,
		kvpb.File_kvpb_kv_proto, peerpb.File_peerpb_peer_proto},
	"placement.binpb": {bootstrappb.File_bootstrap_bootstrappb_bootstrap_proto,
		serverpb.File_server_serverpb_server_proto, storepb.File_store_storepb_store_proto},
}

// setOf are the descriptors of files, those that they import first.
func setOf(files []protoreflect.FileDescriptor) *descriptorpb.FileDescriptorSet {
	set, seen := &descriptorpb.FileDescriptorSet{}, map[string]bool{}
	var add func(protoreflect.FileDescriptor)
	add = func(f protoreflect.FileDescriptor) {
		if seen[f.Path()] {
			return
		}
		seen[f.Path()] = true
		for i := range f.Imports().Len() {
			add(f.Imports().Get(i).FileDescriptor)
		}
		set.File = append(set.File, protodesc.ToFileDescriptorProto(f))
	}
	for _, f := range files {
		add(f)
	}
	return set
}

// names are the full names of all messages, fields, enumerations, values, services and methods of a
// set.
func names(set *descriptorpb.FileDescriptorSet) map[string]bool {
	all := map[string]bool{}
	enum := func(within string, e *descriptorpb.EnumDescriptorProto) {
		all[within+"."+e.GetName()] = true
		for _, v := range e.GetValue() {
			all[within+"."+e.GetName()+"."+v.GetName()] = true
		}
	}
	var message func(within string, m *descriptorpb.DescriptorProto)
	message = func(within string, m *descriptorpb.DescriptorProto) {
		name := within + "." + m.GetName()
		all[name] = true
		for _, f := range m.GetField() {
			all[name+"."+f.GetName()] = true
		}
		for _, e := range m.GetEnumType() {
			enum(name, e)
		}
		for _, inner := range m.GetNestedType() {
			message(name, inner)
		}
	}
	for _, f := range set.GetFile() {
		for _, m := range f.GetMessageType() {
			message(f.GetPackage(), m)
		}
		for _, e := range f.GetEnumType() {
			enum(f.GetPackage(), e)
		}
		for _, s := range f.GetService() {
			all[f.GetPackage()+"."+s.GetName()] = true
			for _, m := range s.GetMethod() {
				all[f.GetPackage()+"."+s.GetName()+"."+m.GetName()] = true
			}
		}
	}
	return all
}

// unlisted returns what is wrong with the list of additions: what was added since a release and is
// not listed, and what is listed and was not added, or names a gate that there is not. A message
// that was added stands for all that it contains.
func unlisted(
	before, now map[string]bool, list string, isGate func(string) bool,
) (wrong []string) {
	listed := map[string]bool{}
	for line := range strings.Lines(list) {
		line = strings.TrimSpace(line)
		if line == "" || line[0] == '#' {
			continue
		}
		name, how, _ := strings.Cut(line, " ")
		reason, free := strings.CutPrefix(how, "- ")
		switch {
		case before[name] || !now[name]:
			wrong = append(wrong, name+" is listed, and was not added since the last release")
		case free && reason != "", isGate(how):
		default:
			wrong = append(wrong, name+" is listed without a gate of the next level, and without a reason")
		}
		listed[name] = true
	}
	for _, name := range slices.Sorted(maps.Keys(now)) {
		covered := before[name]
		for at := name; !covered && at != ""; {
			covered = listed[at]
			at = at[:max(0, strings.LastIndexByte(at, '.'))]
		}
		if !covered {
			wrong = append(wrong, fmt.Sprintf("%s was added since %s: name its gate in %s, or the reason "+
				"why it needs none (docs/contributing.md, \"A change of a format\")", name,
				release.Level(release.Tagged).Release(), additions))
		}
	}
	return wrong
}

// Images of every level are there, and what was added since the last tagged release is listed.
func TestMessages(t *testing.T) {
	list, err := os.ReadFile(additions)
	if err != nil {
		t.Fatal(err)
	}
	before, now := map[string]bool{}, map[string]bool{}
	for module, files := range modules {
		present := setOf(files)
		maps.Copy(now, names(present))
		for level := release.V0_1; level <= release.Newest; level++ {
			path := Path(level, module)
			data, err := os.ReadFile(path)
			if os.IsNotExist(err) && update && level == release.Newest {
				data, err = proto.MarshalOptions{Deterministic: true}.Marshal(present)
				if err == nil {
					err = os.MkdirAll(filepath.Dir(path), 0o755)
				}
				if err == nil {
					err = os.WriteFile(path, data, 0o644)
				}
			}
			image := &descriptorpb.FileDescriptorSet{}
			if err == nil {
				err = proto.Unmarshal(data, image)
			}
			if err != nil {
				t.Fatalf("the image of the messages of %s: %v; `make golden` writes it", level, err)
			}
			if level == max(release.Tagged, release.V0_1) {
				maps.Copy(before, names(image))
			}
		}
	}
	wrong := unlisted(before, now, string(list), func(name string) bool {
		gate, known := release.Named(name)
		return known && gate.Level > release.Tagged
	})
	for _, w := range wrong {
		if release.Tagged == release.Before {
			t.Log(w)
			continue
		}
		t.Error(w)
	}
}

// What is added without a line is found, also within an earlier message, and so is a line that says
// nothing, or too much.
func TestAdditionsAreFound(t *testing.T) {
	before := map[string]bool{"p.M": true, "p.M.a": true}
	now := map[string]bool{"p.M": true, "p.M.a": true, "p.M.b": true, "p.N": true, "p.N.x": true}
	for _, c := range []struct {
		list  string
		wrong []string
	}{
		{"", []string{"p.M.b was added", "p.N was added", "p.N.x was added"}},
		{"# comment\np.M.b - ignored by earlier versions\np.N some-gate\n", nil},
		{"p.M.b - x\np.N no-such-gate\n", []string{"p.N is listed without a gate"}},
		{"p.M.b -\np.N - x\n", []string{"p.M.b is listed without a gate"}},
		{"p.M.b - x\np.N - x\np.M.a - x\n", []string{"p.M.a is listed, and was not added"}},
	} {
		got := unlisted(before, now, c.list,
			func(name string) bool { return name == "some-gate" })
		ok := len(got) == len(c.wrong)
		for i := range min(len(got), len(c.wrong)) {
			ok = ok && strings.HasPrefix(got[i], c.wrong[i])
		}
		if !ok {
			t.Errorf("%q: %q", c.list, got)
		}
	}
}
