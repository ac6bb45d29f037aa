{{- /*
What the schema cannot say. Everything is checked here, before the first object is made, so that an
error names the value and not what comes of it.
*/ -}}
{{- define "tidemark.validate" -}}
{{- $image := .Values.image -}}
{{- if not $image.repository -}}
  {{- fail "give image.repository: the registry and name of the image that you have built and pushed, such as --set image.repository=registry.example/tidemark" -}}
{{- end -}}
{{- if not (or $image.tag $image.digest (ne .Chart.AppVersion "0.0.0")) -}}
  {{- fail "give image.tag or image.digest: the chart is of no release, so it knows no version of the image" -}}
{{- end -}}
{{- $fullname := include "tidemark.fullname" . -}}
{{- if not (regexMatch "^[a-z]([-a-z0-9]*[a-z0-9])?$" $fullname) -}}
  {{- fail (printf "the name %q has to begin with a letter and to consist of a-z, 0-9 and -: give fullnameOverride" $fullname) -}}
{{- end -}}
{{- $layout := (include "tidemark.sets" . | fromJson).sets -}}
{{- $names := list -}}
{{- range $set := $layout -}}
  {{- $name := printf "%s-%s" $fullname $set.name -}}
  {{- if gt (len $name) 52 -}}
    {{- fail (printf "the StatefulSet %s would have a name of %d characters, and Kubernetes takes 52: give a shorter fullnameOverride, or shorter names of zones" $name (len $name)) -}}
  {{- end -}}
  {{- if has $set.name $names -}}
    {{- fail (printf "%s is listed twice among the zones" $set.name) -}}
  {{- end -}}
  {{- if eq (int $set.replicas) 0 -}}
    {{- fail (printf "there are more zones than servers: %s would have none" $set.name) -}}
  {{- end -}}
  {{- $names = append $names $set.name -}}
{{- end -}}
{{- $nodes := include "tidemark.nodeReplicas" . | int -}}
{{- if and .Values.locality.fromPodLabels (or .Values.core.zones .Values.nodes.zones) -}}
  {{- fail "locality.fromPodLabels and zones are two ways to say the same: give one of them" -}}
{{- end -}}
{{- if and .Values.combined (gt $nodes 0)
    (ne (empty .Values.core.zones) (empty .Values.nodes.zones)) -}}
  {{- fail "give zones to all servers that hold data or to none: core.zones and nodes.zones" -}}
{{- end -}}
{{- if and .Values.rollout (ne .Values.rollout "all") (not (has .Values.rollout $names)) -}}
  {{- fail (printf "rollout: there is no StatefulSet %q; there are %s" .Values.rollout (join ", " $names)) -}}
{{- end -}}

{{- $tls := .Values.tls -}}
{{- if $tls.enabled -}}
  {{- if and $tls.certManager.enabled $tls.secretName -}}
    {{- fail "tls.secretName and tls.certManager are two sources of the servers' certificates: give one of them" -}}
  {{- end -}}
  {{- if not (or $tls.certManager.enabled $tls.secretName) -}}
    {{- fail "tls.enabled: give tls.secretName, or tls.certManager.enabled" -}}
  {{- end -}}
  {{- if not (or $tls.clientCA.secretName $tls.clientCA.configMapName (include "tidemark.ownClientCA" .)) -}}
    {{- fail "tls.clientCA: give the Secret or ConfigMap with the authority that signs clients' certificates" -}}
  {{- end -}}
  {{- if .Values.clusterSecret.existingSecret -}}
    {{- fail "clusterSecret is for servers without TLS: with it they know each other by their certificates" -}}
  {{- end -}}
{{- else if or $tls.secretName $tls.certManager.enabled $tls.clientCA.secretName $tls.clientCA.configMapName $tls.peerCA.secretName $tls.peerCA.configMapName $tls.peerName $tls.admins -}}
  {{- fail "values of tls are given, and tls.enabled is false" -}}
{{- end -}}
{{- range $ca := list $tls.clientCA $tls.peerCA -}}
  {{- if and $ca.secretName $ca.configMapName -}}
    {{- fail "tls.clientCA, tls.peerCA: give a Secret or a ConfigMap, not both" -}}
  {{- end -}}
{{- end -}}

{{- $managed := list "dir" "listen" "advertise" "core" "roles" "locality" "http" "tls-cert" "tls-key" "tls-ca" "tls-peer-ca" "tls-peer-name" "tls-admin" "secret-file" "insecure" "log-level" "log-format" -}}
{{- range $arg := concat .Values.core.extraArgs .Values.nodes.extraArgs -}}
  {{- $flag := first (splitList "=" (trimPrefix "--" $arg)) -}}
  {{- if has $flag $managed -}}
    {{- fail (printf "extraArgs: the chart itself sets --%s" $flag) -}}
  {{- end -}}
{{- end -}}

{{- /* What must not change once the cluster exists. Without a cluster to look at, nothing is known. */ -}}
{{- $before := lookup "v1" "ConfigMap" .Release.Namespace $fullname -}}
{{- if and $before $before.data (hasKey $before.data "core") -}}
  {{- if ne $before.data.core (include "tidemark.core" .) -}}
    {{- fail (printf "the core servers of a cluster cannot change: they are %s, and would be %s. core.replicas, core.zones, clusterDomain and ports.tidemark have to stay" $before.data.core (include "tidemark.core" .)) -}}
  {{- end -}}
  {{- if and (eq $before.data.combined "true") (not .Values.combined) -}}
    {{- fail "the core servers hold data: combined has to stay true" -}}
  {{- end -}}
  {{- if not .Values.nodes.allowFewer -}}
    {{- $now := dict -}}
    {{- range $set := $layout -}}
      {{- $_ := set $now $set.name (int $set.replicas) -}}
    {{- end -}}
    {{- range $entry := splitList " " $before.data.layout -}}
      {{- $parts := splitList "=" $entry -}}
      {{- if lt (int (get $now (first $parts) | default 0)) (int (last $parts)) -}}
        {{- fail (printf "%s has %s servers and would have %d: the replicas on those that go would be lost. nodes.allowFewer takes that risk" (first $parts) (last $parts) (int (get $now (first $parts) | default 0))) -}}
      {{- end -}}
    {{- end -}}
  {{- end -}}
{{- end -}}
{{- end -}}
