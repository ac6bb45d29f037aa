package main

import "testing"

func TestParseCPUModel(t *testing.T) {
	for text, want := range map[string]string{
		"processor\t: 0\nmodel name\t: A  CPU @ 3 GHz\nmodel name\t: B\n": "A  CPU @ 3 GHz",
		"model name\t:\n": "unknown",
		"model name":      "unknown",
		"":                "unknown",
	} {
		if got := parseCPUModel(text); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}

func TestParseMemory(t *testing.T) {
	for text, want := range map[string]int{
		"MemTotal:       24684092 kB\nMemFree: 1 kB\n": 24105,
		"MemFree: 1024 kB\n":                           0,
		"MemTotal: much\n":                             0,
		"":                                             0,
	} {
		if got := parseMemory(text); got != want {
			t.Errorf("%q: %d, want %d", text, got, want)
		}
	}
}

func TestParseFilesystem(t *testing.T) {
	const mounts = "/dev/a / ext4 rw 0 0\ntmpfs /tmp tmpfs rw,size=1k 0 0\n/dev/b /data\\040disk " +
		"xfs rw,noatime 0 0\nshort line\n"
	for dir, want := range map[string]string{
		"/home/x":         "ext4 on /dev/a (rw)",
		"/tmp":            "tmpfs on tmpfs (rw,size=1k)",
		"/tmp/x/y":        "tmpfs on tmpfs (rw,size=1k)",
		"/tmpfile":        "ext4 on /dev/a (rw)",
		"/data disk/here": "xfs on /dev/b (rw,noatime)",
	} {
		if got := parseFilesystem(mounts, dir); got != want {
			t.Errorf("%s: %q, want %q", dir, got, want)
		}
	}
	if got := parseFilesystem("", "/"); got != "unknown" {
		t.Errorf("no mounts: %q", got)
	}
}
