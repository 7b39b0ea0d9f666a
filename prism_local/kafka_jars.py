"""The jars of Apache Kafka: the broker and what it needs. They are fetched where a broker is asked for."""

from collections.abc import Iterator

from prism_local.jars import Jar

_TABLE = """\
at.yawk.lz4
  lz4-java 1.11.2 897831 8a7458657938e9b692224db83aac458c13abd7a59ab75c3d3b08bd2233a646a2
com.dynatrace.hash4j
  hash4j 0.22.0 316573 23028a3fd006e530bf495f551083208187cafd8f80624d048eba56442f16a50e
com.fasterxml.jackson.core
  jackson-annotations 2.21 82104 53ca085f4a150f703f49e1aabd935bd03b43e1ea3d55d135438292af22cef56b
  jackson-core 2.21.7 594782 8c5623b98f32d5f7e1287ff61ed50e08ab7b11381e991fff89327faabba42261
  jackson-databind 2.21.7 1709095 1290c2795e93e8a6861a6c4d9ff0d844d32f5ea178362cb2721edf5561e828b1
com.fasterxml.jackson.dataformat
  jackson-dataformat-yaml 2.21.7 63001 df2b3e6a194181dc067b7211d750926b4ae9e4f3c892a0005b8219a9b59be681
com.fasterxml.jackson.datatype
  jackson-datatype-jdk8 2.21.7 36039 b8f62f98363ed9aa259b3a479a64fcbe7e081158a8bec6733972e900d12f4e47
com.github.ben-manes.caffeine
  caffeine 3.2.0 906581 ec411dfdf0c03f25218648ce89861630b71680e5858a9a7278ebac8e55cab3d7
com.github.luben
  zstd-jni 1.5.7-17 6323239 c9043e2da8a16c13b6cd7661a5cb56685a573c3546ef4bd0ead67b0b67c2e107
com.google.re2j
  re2j 1.8 114335 7b52c72156dd7f98b3237a5b35c1d34fba381b21048c89208913ad80a45dfbd7
com.typesafe.scala-logging
  scala-logging_2.13 3.9.6 61614 0ad0c3f4d89d538b3b6c300158555e266aa69cf1b5f6522aba8b5bad238eb994
com.yammer.metrics
  metrics-core 2.2.0 82123 6b7a14a6f34c10f8683f7b5e2f39df0f07b58c7dff0e468ebbc713905c46979c
commons-beanutils
  commons-beanutils 1.11.0 246806 9e44ba68ec9a3f21286fa2a8bbb003b735c0f69101bb43144b79f4f8aaa74709
commons-collections
  commons-collections 3.2.2 588337 eeeae917917144a68a741d4c0dff66aa5c5c5fd85593ff217bced3fc8ca783b8
commons-digester
  commons-digester 2.1 196768 e0b2b980a84fc6533c5ce291f1917b32c507f62bcad64198fff44368c2196a3d
commons-logging
  commons-logging 1.3.5 73737 6d7a744e4027649fbb50895df9497d109f98c766a637062fe8d2eabbb3140ba4
commons-validator
  commons-validator 1.10.1 203132 ed74711a78d793ca37f6075e4a1e93d107233dfd20d0bb17e32bad88d38e56aa
net.sf.jopt-simple
  jopt-simple 5.0.4 78146 df26cc58f235f477db07f753ba5a3ab243ebe5789d9f89ecf68dd62ea9a66c28
net.sourceforge.argparse4j
  argparse4j 0.7.0 90347 65ceb669d88f63306c680f8088bbf765bbca72d288a61a03703000076c3d3f56
org.apache.kafka
  kafka-clients 4.4.0 10925782 1ab07317eb6633241392449d329dbdc5d9251e6ffc4926860f42dd966e88bdf9
  kafka-coordinator-common 4.4.0 125271 e380267a17981edbadaa2e2e785f18dc1b5671abf2d1084eb7da06a765c71d0c
  kafka-group-coordinator 4.4.0 1052839 3fc830ace54f6a13f9f536bc0564bf39a68797365a4c4b194bd7db4fb893b2bc
  kafka-group-coordinator-api 4.4.0 31213 bf11d7586c7363ba72a16ac5ef80c65365de9166469f7f6fc4ac5d2e0a98213a
  kafka-metadata 4.4.0 870061 6c52de74ecd670332e1e1324f5d40311275ac49b22699b6722e5fb07dd266fcb
  kafka-raft 4.4.0 338700 687f278ce5d82b7f53644643e21e1a7452530f202826108990f0fe4f3d334d4f
  kafka-server 4.4.0 525976 5f5456c2976203525080220212639f7033274b94458ceabf44197f4800bd615c
  kafka-server-common 4.4.0 411710 e50931831a27a2f3eb6cf74e8d63cc325b4e98656f30e94f8829297951ca5080
  kafka-share-coordinator 4.4.0 116547 6969a7961ca98d37a039bbe0af0fe761d6b0dd07ca9666802f47821167afbb6e
  kafka-storage 4.4.0 646984 9eaa4dafacc251080ece0efa8511283da5de6931e843457f6af87f02f9b50039
  kafka-storage-api 4.4.0 29795 edd47a86cdce283fc15d033090417a5dec29642eb807713f2e807e3c46b5ca46
  kafka-tools-api 4.4.0 9605 348b63a7d22739703ad34613a1154702568d462c3a8adb1dd655482251f4e529
  kafka-transaction-coordinator 4.4.0 82042 1d5324d59776d6b7f324cfdc87647b1e88f9823332201c0324e7ae9f210d915d
  kafka_2.13 4.4.0 1333804 76d3314f873571677ff98620ab9a431e508e3687f921a3df4f70d692a970475e
org.apache.logging.log4j
  log4j-api 2.25.5 351427 64777f73ea0b3104c04eb82befbdccc30a425a19e83ad06cb2f93aa303511863
  log4j-core 2.25.5 2020932 050c4f85deb48b055e9c041ac39043fbb79ce477841a11a1eb2969c86c6a0072
org.bitbucket.b_c
  jose4j 0.9.6 299502 7314af50cde9c99e8eaf43eee617a23edcc6bb43036221064355094999d837ef
org.hdrhistogram
  HdrHistogram 2.2.2 177206 22d1d4316c4ec13a68b559e98c8256d69071593731da96136640f864fa14fad8
org.jspecify
  jspecify 1.0.0 3819 1fad6e6be7557781e4d33729d49ae1cdc8fdda6fe477bb0cc68ce351eafdfbab
org.pcollections
  pcollections 4.0.2 73718 2bbeef5797a241300c4f7513cd546239629ed7deda4fc0c31df90bb95f5f13ef
org.scala-lang
  scala-library 2.13.18 5940741 4e85d96ff7bc7dc627985523c3541b9917aaa08e956391380c42db21a2c4e5a0
  scala-reflect 2.13.18 3814367 6935ff1982b2ac93d695f15aa66921be2f602921277afe002f018fd8c7d6e29b
org.slf4j
  slf4j-api 1.7.36 41125 d3ef575e3e4979678dc01bf1dcce51021493b4d11fb7f1be8ad982877c16a1c0
  slf4j-simple 1.7.36 15333 2f39bed943d624dfa8f4102d0571283a10870b6aa36f197a8a506f147010c10f
org.xerial.snappy
  snappy-java 1.1.10.7 2338496 4c766cb3f855415ee734b2392949a0b6f12a60879334a74518deaf6270d32e36
org.yaml
  snakeyaml 2.5 340015 e6682acf1ace77508ef13649cbf4f8d09d2cf5457bdb61d25ffb6ac0233d78dd
"""
"""Organisations, each with its artifacts: revision, bytes and SHA-256."""


def _read(table: str) -> Iterator[Jar]:
    organisation = ""
    for line in table.splitlines():
        if not line.startswith(" "):
            organisation = line
            continue
        artifact, revision, size, sha256 = line.split()
        yield Jar(organisation, artifact, revision, int(size), sha256)


JARS = tuple(_read(_TABLE))
