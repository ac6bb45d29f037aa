package helm

import (
	"fmt"
	"strings"
	"testing"

	core "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
)

// Names and labels are within the limits of Kubernetes, with the longest names that are taken; with
// longer ones the chart is refused.
func TestNames(t *testing.T) {
	eachCase(t, checkNames)
	for _, c := range []struct {
		name, values string
		longest      int
	}{
		{"defaults", "", 52 - len("-tidemark-core")},
		{"zones", "nodes: {zones: [northamerica-northeast1-a]}",
			52 - len("-tidemark-node-northamerica-northeast1-a")},
		{"cert-manager", cases["cert-manager"], 52 - len("-tidemark-core")},
	} {
		t.Run(c.name, func(t *testing.T) {
			checkNames(t, mustRender(t, release{name: strings.Repeat("x", c.longest), values: c.values}))
			_, err := render(release{name: strings.Repeat("x", c.longest+1), values: c.values})
			if err == nil || !strings.Contains(err.Error(), "give a shorter fullnameOverride") {
				t.Errorf("a longer name: %v", err)
			}
		})
	}
}

func checkNames(t *testing.T, o *objects) {
	wrong := func(what, value string, problems []string) {
		for _, problem := range problems {
			t.Errorf("%s %q: %s", what, value, problem)
		}
	}
	checkLabels := func(of string, labels map[string]string) {
		for key, value := range labels {
			wrong("label of "+of, key, validation.IsQualifiedName(key))
			wrong("label of "+of, value, validation.IsValidLabelValue(value))
		}
	}
	for _, object := range o.all {
		name := object.GetName()
		wrong("object", name, validation.IsDNS1123Subdomain(name))
		checkLabels(name, object.GetLabels())
		for key := range object.GetAnnotations() {
			wrong("annotation of "+name, key, validation.IsQualifiedName(strings.ToLower(key)))
		}
	}
	for _, service := range o.services {
		wrong("service", service.Name, validation.IsDNS1035Label(service.Name))
		checkLabels(service.Name, service.Spec.Selector)
		for _, port := range service.Spec.Ports {
			wrong("port of service", port.Name, validation.IsDNS1123Label(port.Name))
			if port.TargetPort.StrVal == "" {
				t.Errorf("%s: port %s leads to no port by its name", service.Name, port.Name)
			}
		}
	}
	for _, set := range o.statefulSets {
		// Kubernetes labels each pod with its name and with the StatefulSet's name and a hash.
		wrong("pod", "", validation.IsDNS1123Label(fmt.Sprintf("%s-%d", set.Name, 999)))
		wrong("revision", "", validation.IsValidLabelValue(set.Name+"-0123456789"))
		for _, host := range hosts(set, o.domain()) {
			wrong("host", host, validation.IsDNS1123Subdomain(host))
		}
		checkLabels(set.Name, set.Spec.Template.Labels)
		checkContainers(t, &set.Spec.Template.Spec)
		for _, port := range server(set).Ports {
			wrong("port", port.Name, validation.IsValidPortName(port.Name))
			wrong("port", port.Name, validation.IsValidPortNum(int(port.ContainerPort)))
		}
	}
	for _, pod := range o.pods {
		checkContainers(t, &pod.Spec)
	}
	for _, certificate := range o.certificates {
		if n := len(certificate.Spec.CommonName); n > 64 {
			t.Errorf("%s: a common name of %d characters", certificate.Name, n)
		}
		for _, name := range certificate.Spec.DNSNames {
			if strings.HasPrefix(name, "*.") {
				wrong("certificate's name", name, validation.IsWildcardDNS1123Subdomain(name))
			} else {
				wrong("certificate's name", name, validation.IsDNS1123Subdomain(name))
			}
		}
	}
}

// checkContainers sees that volumes and mounts fit, and that no name occurs twice.
func checkContainers(t *testing.T, pod *core.PodSpec) {
	t.Helper()
	volumes := map[string]bool{"data": true}
	for _, volume := range pod.Volumes {
		if volumes[volume.Name] {
			t.Errorf("two volumes %s", volume.Name)
		}
		volumes[volume.Name] = true
	}
	for _, container := range pod.Containers {
		seen := map[string]bool{}
		for _, mount := range container.VolumeMounts {
			if !volumes[mount.Name] || seen[mount.MountPath] {
				t.Errorf("%s is mounted at %s", mount.Name, mount.MountPath)
			}
			seen[mount.MountPath] = true
		}
		for _, env := range container.Env {
			if seen[env.Name] {
				t.Errorf("two variables %s", env.Name)
			}
			seen[env.Name] = true
		}
		if container.Image == "" || strings.HasSuffix(container.Image, ":") {
			t.Errorf("image %q", container.Image)
		}
	}
}
