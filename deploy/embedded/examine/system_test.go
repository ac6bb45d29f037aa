package examine

import (
	"testing"
	"testing/fstest"

	"github.com/tidemarkdb/tidemark/rpc/diagnosispb"
)

func TestSystem(t *testing.T) {
	file := func(text string) *fstest.MapFile { return &fstest.MapFile{Data: []byte(text)} }
	s := system{fstest.MapFS{
		"proc/meminfo":     file("MemTotal:  2048 kB\nMemFree: 1 kB\nMemAvailable:   1024 kB\n"),
		"proc/self/status": file("Name:\ttidemark\nVmRSS:\t  512 kB\n"),
		"proc/self/limits": file("Limit  Soft Limit Hard Limit Units\n" +
			"Max cpu time unlimited unlimited seconds\nMax open files 1024 4096 files\n"),
		"proc/self/fd/0": file(""), "proc/self/fd/7": file(""),
		"proc/self/cgroup": file("0::/a/b\n"),
		"sys/fs/cgroup/a/b/cpu.stat": file("usage_usec 5\nnr_periods 200\nnr_throttled 50\n" +
			"throttled_usec 9\n"),
		"proc/pressure/cpu": file("some avg10=12.34 avg60=0.00 avg300=0.00 total=1\n"),
		"proc/pressure/memory": file("some avg10=90.00 avg60=0.00 avg300=0.00 total=1\n" +
			"full avg10=7.00 avg60=0.00 avg300=0.00 total=1\n"),
	}}
	var m diagnosispb.Memory
	s.memory(&m)
	if m.Machine != 2<<20 || m.Available != 1<<20 || m.Used != 512<<10 || m.PressurePermille != 70 {
		t.Errorf("memory: %v", &m)
	}
	var p diagnosispb.Processor
	s.processor(&p)
	if p.Count == 0 || p.LimitMicro == 0 || p.ThrottledPermille != 250 || p.PressurePermille != 123 {
		t.Errorf("processor: %v", &p)
	}
	if f := s.files(); f.Limit != 1024 || f.Open != 2 {
		t.Errorf("files: %v", f)
	}
}

// Another system has none of the files, and a strange one has other content.
func TestStrangeSystem(t *testing.T) {
	file := &fstest.MapFile{Data: []byte("MemTotal:\nMax open files x\nsome avg10=1e9\n0::/\n\n\n")}
	for _, s := range []system{{fstest.MapFS{}}, {fstest.MapFS{"proc/meminfo": file,
		"proc/self/status": file, "proc/self/limits": file, "proc/self/cgroup": file,
		"proc/pressure/cpu": file, "proc/pressure/memory": file}}} {
		var m diagnosispb.Memory
		var p diagnosispb.Processor
		s.memory(&m)
		s.processor(&p)
		if m.Machine+m.Available+m.Used != 0 || p.ThrottledPermille+p.PressurePermille != 0 ||
			s.files().Limit != 0 {
			t.Errorf("%v, %v, %v", &m, &p, s.files())
		}
	}
}
