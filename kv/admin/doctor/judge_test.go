package doctor

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/tidemarkdb/tidemark/hlc"
	"github.com/tidemarkdb/tidemark/kv"
	"github.com/tidemarkdb/tidemark/kv/admin"
)

const gib = 1 << 30

// healthy are the facts of a cluster in which all is well.
func healthy() *Facts {
	now := time.Date(2026, 12, 1, 12, 0, 0, 0, time.UTC)
	f := &Facts{Now: now, Errs: map[string]error{},
		Status:    admin.Status{Cluster: 7, Ready: true, Version: "v0.1.0"},
		Keyspaces: []admin.KeyspaceInfo{{Name: "things", Replicas: 3}},
		Upgrade:   admin.Upgrade{Level: 1, Target: 1},
		Backups:   []admin.BackupInfo{{State: admin.BackupComplete}},
		Schedules: []admin.BackupScheduleInfo{{BackupSchedule: admin.BackupSchedule{Name: "nightly",
			Full: 24 * time.Hour, Log: 10 * time.Second}, Last: "b", LogID: "l",
			LastAt: hlc.Timestamp{Wall: now.Add(-time.Hour).UnixNano()},
			LogAt:  hlc.Timestamp{Wall: now.Add(-5 * time.Second).UnixNano()}}},
	}
	var replicas []admin.ReplicaInfo
	for id := uint64(1); id <= 3; id++ {
		address := fmt.Sprintf("10.0.0.%d:7400", id)
		x := admin.Examination{Address: address, Cluster: 7, Node: id, Member: id, Version: "v0.1.0",
			Started:   now.Add(-time.Hour),
			Processor: admin.ProcessorReport{Count: 8, Limit: 8, Wait: time.Millisecond},
			Memory: admin.MemoryReport{Machine: 32 * gib, GroupLimit: 16 * gib, Limit: 14 * gib,
				Used: 3 * gib},
			Files: admin.FileReport{Limit: 1 << 20, Open: 300},
			Clock: admin.ClockReport{Time: now, MaxOffset: 250 * time.Millisecond},
			Disks: []admin.DiskReport{{Part: "node", Directory: "/data", Size: 100 * gib,
				Free: 50 * gib, Reserve: 64 << 20, LogSync: time.Millisecond}},
			Certificates: []admin.Certificate{{File: "/tls/server.pem", Kind: "server",
				Subject: "CN=a", NotBefore: now.Add(-time.Hour), NotAfter: now.Add(90 * 24 * time.Hour)}},
			Settings: []admin.Setting{{Name: "max-offset", Value: "250ms", Same: true},
				{Name: "locality", Value: "region=,zone="}}}
		for other := uint64(1); other <= 3; other++ {
			if other != id {
				x.Links = append(x.Links, admin.Link{Address: fmt.Sprintf("10.0.0.%d:7400", other),
					RoundTrip: time.Millisecond})
			}
		}
		f.Servers = append(f.Servers, Server{Address: address, Examination: x})
		f.Nodes = append(f.Nodes, admin.NodeInfo{ID: id, Address: address, Alive: true, Leaders: 1,
			Status: admin.NodeActive})
		f.Core.Members = append(f.Core.Members, admin.CoreMemberInfo{ID: id, Address: address,
			Role: "voter", Answers: true, LeadsCoordination: id == 1,
			Health: &admin.CoreMemberHealth{CoordinationOpen: true}})
		replicas = append(replicas, admin.ReplicaInfo{Node: id})
	}
	f.Core.Members[0].Health.Coordination = []admin.CoordinationFollower{
		{ID: 2, Answers: true}, {ID: 3, Answers: true}}
	f.Partitions = []admin.PartitionInfo{{ID: 1, Keyspace: "things", Replicas: replicas, Leader: 1}}
	return f
}

// found lists the findings of a report, but for what to do.
func found(r Report) (all []string) {
	for _, c := range r {
		for _, f := range c.Findings {
			all = append(all, fmt.Sprintf("%s: %v: %s: %s", c.Area, f.Level, strings.Join(f.Subjects, ", "),
				f.What))
			if f.What == "" || strings.HasSuffix(f.What, ".") {
				all = append(all, "no sentence: "+f.What)
			}
		}
	}
	return all
}

// A server of an older release is no problem during an upgrade. An examination that is refused to the
// user says nothing of the server.
func TestExaminationErrors(t *testing.T) {
	f := healthy()
	f.Servers[2] = Server{Address: f.Servers[2].Address, Err: kv.NewError("examine", "", "",
		fmt.Errorf("%w", status.Error(codes.Unimplemented, "unknown method")))}
	if r := Judge(f); r.Level() != Advice || !slices.ContainsFunc(found(r), func(s string) bool {
		return strings.Contains(s, "a release without examinations")
	}) || f.refusal() != nil {
		t.Errorf("a server of an older release: %q", found(r))
	}
	f.Servers[1].Err = kv.NewError("examine", "", "", kv.ErrUnauthenticated)
	if f.refusal() == nil {
		t.Error("that the user may not examine is no error")
	}
	f.Servers[1].Err = kv.NewError("examine", "", "", kv.ErrUnavailable)
	if f.refusal() != nil {
		t.Error("a server that does not answer has refused the user")
	}
}

// A log that has not finished its first round has no age.
func TestNewLog(t *testing.T) {
	f := healthy()
	f.Schedules[0].LogAt = hlc.Timestamp{}
	if r := Judge(f); r.Level() != Fine {
		t.Errorf("a log that has just begun: %q", found(r))
	}
}

func TestHealthy(t *testing.T) {
	r := Judge(healthy())
	if all := found(r); len(all) > 0 || r.Level() != Fine {
		t.Errorf("all is well, and found is: %q", all)
	}
	for _, c := range r {
		if c.Looked == "" {
			t.Errorf("%s does not say what was looked at", c.Area)
		}
	}
}

// Each fault is found, with its level and its server, and nothing else is.
func TestFaults(t *testing.T) {
	const third = "10.0.0.3:7400"
	for _, fault := range []struct {
		name string
		make func(f *Facts, s *admin.Examination)
		want string
	}{
		{"a full disk", func(_ *Facts, s *admin.Examination) {
			s.Disks[0].Free, s.Disks[0].Full = 60<<20, true
		}, "disks: bad: /data of " + third + ": the disk is full: 60 MiB are free, 64 MiB are kept in " +
			"reserve (--min-free)"},
		{"little room", func(_ *Facts, s *admin.Examination) { s.Disks[0].Free = 5 * gib },
			"disks: warning: /data of " + third + ": 5.0 GiB of 100 GiB are free, and data is refused " +
				"below 64 MiB"},
		{"a slow disk", func(_ *Facts, s *admin.Examination) {
			s.Disks[0].Slow, s.Disks[0].LogSync = true, 40*time.Millisecond
		}, "disks: warning: /data of " + third + ": the disk is slow: the log takes 40ms to sync, many " +
			"times longer than at other servers"},
		{"a disk that stands still", func(_ *Facts, s *admin.Examination) {
			s.Disks[0].Writing = 3 * time.Second
		}, "disks: bad: /data of " + third + ": a write to the log stands still for 3s"},
		{"a failed disk", func(_ *Facts, s *admin.Examination) { s.Disks[0].Failure = "EIO" },
			"disks: bad: /data of " + third + ": the node's database has failed: EIO"},
		{"compactions that are late", func(_ *Facts, s *admin.Examination) {
			s.Disks[0].LevelZeroFiles = 60
		}, "disks: warning: /data of " + third + ": compactions do not keep up: 60 files of the " +
			"youngest level, 0 B to rewrite"},
		{"a slow processor", func(_ *Facts, s *admin.Examination) {
			s.Processor.Wait = 80 * time.Millisecond
		}, "processors: warning: " + third + ": the processor is slow: the process waits 80ms for one, " +
			"others wait 1ms"},
		{"a throttled group", func(_ *Facts, s *admin.Examination) { s.Processor.Throttled = 0.25 },
			"processors: warning: " + third + ": its control group cut 25 % of its periods short, for " +
				"its limit of processors"},
		{"a limit above the group's", func(_ *Facts, s *admin.Examination) {
			s.Memory.Limit = 17 * gib
		}, "memory: bad: " + third + ": --memory-limit is 17 GiB, and its control group ends the " +
			"process at 16 GiB"},
		{"much memory", func(_ *Facts, s *admin.Examination) { s.Memory.Used = 16 * gib },
			"memory: warning: " + third + ": the process uses 16 GiB, more than --memory-limit (14 GiB)"},
		{"many files", func(_ *Facts, s *admin.Examination) {
			s.Files = admin.FileReport{Limit: 1 << 20, Open: 1 << 20}
		}, "open files: bad: " + third + ": 1048576 files are open, and 1048576 are allowed"},
		{"few files", func(_ *Facts, s *admin.Examination) { s.Files.Limit = 1024 },
			"open files: advice: " + third + ": 1024 files are allowed, and 65536 are better"},
		{"a clock ahead", func(_ *Facts, s *admin.Examination) {
			s.Links[0].Ahead = -200 * time.Millisecond
		}, "clocks: warning: " + third + " and 10.0.0.1:7400: the clocks are 200ms apart, more than " +
			"half of what --max-offset allows (250ms)"},
		{"clocks apart", func(_ *Facts, s *admin.Examination) { s.Links[0].Ahead = time.Second },
			"clocks: bad: " + third + " and 10.0.0.1:7400: the clocks are 1s apart, and --max-offset " +
				"allows 250ms: reads may be stale"},
		{"a distrusted clock", func(_ *Facts, s *admin.Examination) { s.Clock.Distrust = "it jumped" },
			"clocks: bad: " + third + ": it jumped"},
		{"a cut link", func(_ *Facts, s *admin.Examination) {
			s.Links[1] = admin.Link{Address: "10.0.0.2:7400", Failure: "no route"}
		}, "network: bad: " + third + ": it does not reach 10.0.0.2:7400: no route"},
		{"a slow network", func(f *Facts, s *admin.Examination) {
			s.Links[0].RoundTrip, s.Links[1].RoundTrip = 40*time.Millisecond, 41*time.Millisecond
			f.Servers[0].Links[1].RoundTrip = 40 * time.Millisecond
			f.Servers[1].Links[1].RoundTrip = 41 * time.Millisecond
		}, "network: warning: " + third + ": the network is slow: a message to it and back takes 40ms, " +
			"between others 1ms"},
		{"two versions", func(_ *Facts, s *admin.Examination) { s.Version = "v0.2.0" },
			"versions: warning: : servers run different versions: v0.1.0 at 10.0.0.1:7400, " +
				"10.0.0.2:7400; v0.2.0 at " + third},
		{"an upgrade that waits", func(f *Facts, _ *admin.Examination) {
			f.Upgrade = admin.Upgrade{Level: 1, Target: 2, Release: "v0.1", TargetRelease: "v0.2"}
		}, "versions: advice: : the cluster still uses the formats of v0.1, and could use those of v0.2"},
		{"an old certificate", func(f *Facts, s *admin.Examination) {
			s.Certificates[0].NotAfter = f.Now.Add(-time.Hour)
		}, "certificates: bad: /tls/server.pem of " + third + ": the certificate of CN=a has run out " +
			"on 2026-12-01"},
		{"a certificate that ends soon", func(f *Facts, s *admin.Examination) {
			s.Certificates[0].NotAfter = f.Now.Add(48 * time.Hour)
		}, "certificates: warning: /tls/server.pem of " + third + ": the certificate of CN=a runs out " +
			"on 2026-12-03"},
		{"other settings", func(_ *Facts, s *admin.Examination) { s.Settings[0].Value = "500ms" },
			"settings: warning: --max-offset: servers have different values: 250ms at 10.0.0.1:7400, " +
				"10.0.0.2:7400; 500ms at " + third},
		{"insecure", func(_ *Facts, s *admin.Examination) {
			s.Settings = append(s.Settings, admin.Setting{Name: "insecure", Value: "true"})
		}, "settings: warning: " + third + ": --insecure takes every caller that says so for a server " +
			"of the cluster"},
		{"a server that does not answer", func(f *Facts, _ *admin.Examination) {
			f.Servers[2] = Server{Address: third, Err: errors.New("no answer")}
		}, "servers: bad: " + third + ": it cannot be examined: no answer"},
		{"another cluster", func(_ *Facts, s *admin.Examination) { s.Cluster = 8 },
			"servers: bad: " + third + ": it is in another cluster, 0000000000000008"},
		{"few replicas", func(f *Facts, _ *admin.Examination) {
			f.Partitions[0].Replicas = f.Partitions[0].Replicas[:2]
		}, "replication: warning: keyspace things: 1 partition has fewer replicas than it is to have"},
		{"many replicas wanted", func(f *Facts, _ *admin.Examination) { f.Keyspaces[0].Replicas = 5 },
			"replication: warning: keyspace things: it is to have 5 replicas, and 3 nodes are alive"},
		{"a keyspace near its quota", func(f *Facts, _ *admin.Examination) {
			f.Keyspaces[0].Quotas = admin.Quotas{Bytes: 1000, Requests: 100, Throughput: 100}
			f.Keyspaces[0].Used = &admin.Quotas{Bytes: 810, Requests: 79, Throughput: 0}
		}, "replication: warning: keyspace things: it uses 81 % of its quota of stored bytes"},
		{"a keyspace beyond its quota", func(f *Facts, _ *admin.Examination) {
			f.Keyspaces[0].Quotas = admin.Quotas{Requests: 100}
			f.Keyspaces[0].Used = &admin.Quotas{Bytes: 810, Requests: 250}
		}, "replication: warning: keyspace things: it uses 250 % of its quota of requests a second: " +
			"requests beyond it are refused"},
		{"a pause", func(f *Facts, _ *admin.Examination) { f.Placement.Paused = true },
			"placement: warning: : placement is paused: no replica and no leader is moved, not even for " +
				"a repair"},
		{"a slow operator", func(f *Facts, _ *admin.Examination) {
			f.Operators = []admin.OperatorInfo{{Partition: 1, Keyspace: "things", Kind: "add replica",
				Age: 2 * time.Hour, WaitsFor: "a snapshot"}}
		}, "placement: warning: partition 1 of things: its operator (add replica) has taken 2h0m0s, " +
			"and waits for: a snapshot"},
		{"no backup", func(f *Facts, _ *admin.Examination) { f.Backups, f.Schedules = nil, nil },
			"backups: warning: : there is no backup that is known to the cluster, and no schedule"},
		{"a late backup", func(f *Facts, _ *admin.Examination) {
			f.Schedules[0].LastAt = hlc.Timestamp{Wall: f.Now.Add(-72 * time.Hour).UnixNano()}
		}, "backups: bad: schedule nightly: its last backup is 72h0m0s old, and there should be one " +
			"every 24h0m0s"},
		{"a late log", func(f *Facts, _ *admin.Examination) {
			f.Schedules[0].LogAt = hlc.Timestamp{Wall: f.Now.Add(-time.Hour).UnixNano()}
		}, "backups: bad: schedule nightly: its log is 1h0m0s behind"},
		{"a core of two", func(f *Facts, _ *admin.Examination) {
			f.Core.Members = f.Core.Members[:2]
			f.Core.Members[0].Health.Coordination = f.Core.Members[0].Health.Coordination[:1]
		}, "replication: advice: core: it has 2 members, which bear no more failures than 1 do"},
	} {
		t.Run(fault.name, func(t *testing.T) {
			f := healthy()
			fault.make(f, &f.Servers[2].Examination)
			if all := found(Judge(f)); !slices.Equal(all, []string{fault.want}) {
				t.Errorf("found is %q, and not %q", all, fault.want)
			}
		})
	}
}

// What is found of several servers is said once.
func TestTogether(t *testing.T) {
	f := healthy()
	f.Servers[0].Files.Limit, f.Servers[2].Files.Limit = 1024, 1024
	if all := found(Judge(f)); !slices.Equal(all, []string{"open files: advice: 10.0.0.1:7400, " +
		"10.0.0.3:7400: 1024 files are allowed, and 65536 are better"}) {
		t.Errorf("found is %q", all)
	}
}

// When the core has no leader, lists are missing, and what the servers tell is judged all the same.
func TestWithoutCore(t *testing.T) {
	f := healthy()
	for _, list := range []string{"nodes", "core", "keyspaces", "partitions", "operators",
		"placement", "upgrade", "backups", "schedules"} {
		f.Errs[list] = errors.New("no quorum")
	}
	f.Nodes, f.Core, f.Keyspaces, f.Partitions, f.Schedules = nil, admin.Core{}, nil, nil, nil
	f.Servers[1].Clock.Distrust = "it jumped"
	r := Judge(f)
	unknown, all := 0, found(r)
	for _, line := range all {
		if strings.HasSuffix(line, "not known: no quorum") {
			unknown++
		}
	}
	if unknown != 10+1 || !slices.Contains(all, "clocks: bad: 10.0.0.2:7400: it jumped") ||
		len(all) != unknown+1 {
		t.Errorf("%d unknown: %q", unknown, all)
	}
}
