"""Words that wishes are made of: simple ones, in far more combinations than the stories have."""

GIRLS = (
    "Ada Aisha Alma Amara Amina Anika Asha Astrid Aya Bea Bibi Carla Carmen Celia Chiara Clara Dara Dina Edith Elena "
    "Elif Elsa Esme Eva Fatima Fern Fiona Freya Gemma Greta Hana Hazel Heidi Ida Ines Ingrid Iris Ivy Jada Jia Joy "
    "June Kaya Keiko Kira Lea Leila Lena Lina Lola Lou Maja Mara Maya Mei Mila Mina Mona Nadia Naomi Nell Nia Nora "
    "Olga Olive Paloma Pia Pippa Rania Rosa Ruth Salma Sana Selma Signe Sofia Sonya Tamara Tess Thea Uma Vera Viola "
    "Wanda Willa Yara Yuki Zadie Zoe Lily Mia Lucy Anna Sara Sue Molly Amy Jane Emma Bella Ella Daisy Sally"
).split()
BOYS = (
    "Abel Adam Ahmed Ali Amir Anton Arlo Arun Ash Axel Bilal Boris Bruno Caleb Carlos Cem Cole Dan Dario David Diego "
    "Dmitri Eddie Elias Emil Eric Ezra Farid Felix Finn Gabe Gus Hans Hassan Hugo Ian Idris Isaac Ivan Jamal Jan "
    "Jonas Jorge Jude Kai Karl Kenji Kofi Lars Liam Lino Luca Luis Malik Marco Mario Mateo Milo Nico Nils Noah Otis "
    "Otto Owen Pablo Paul Pavel Pedro Rafi Raj Ravi Remy Rico Ron Rory Samir Sasha Sven Taro Theo Tomas Umar Victor "
    "Wei Will Yusuf Zack Tim Tom Ben Max Sam Jack Bob John Joe Jake Andy Pete Fred Danny"
).split()
ANIMALS = (
    "dog cat rabbit fox bear mouse duck owl turtle hedgehog penguin whale dolphin elephant lion tiger monkey giraffe "
    "zebra horse pony cow pig sheep goat lamb hen rooster goose swan crow sparrow robin parrot eagle pigeon seal "
    "otter beaver squirrel chipmunk raccoon skunk badger mole bat deer moose wolf puppy kitten frog toad snail worm "
    "ant bee butterfly ladybug spider cricket caterpillar dragonfly crab octopus starfish shark fish seahorse snake "
    "lizard dinosaur dragon unicorn camel kangaroo koala panda hippo crocodile peacock bird bunny duckling chick "
    "donkey"
).split()
PEOPLE = (
    "girl,boy,baker,farmer,king,queen,prince,princess,knight,pirate,fisherman,gardener,teacher,painter,tailor,"
    "shoemaker,sailor,pilot,postman,firefighter,doctor,nurse,clown,magician,grandmother,grandfather,astronaut,cook,"
    "carpenter,shepherd,miller,fairy,giant,witch,wizard,mermaid,elf,gnome,robot,snowman,scarecrow,doll,teddy bear,"
    "baby,twin,dancer,singer,bus driver,policeman,neighbor,cowboy,monster,ghost,troll,inventor,librarian"
).split(",")
OBJECTS = (
    "ball,kite,boat,book,hat,drum,apple,stone,box,bell,lamp,flower,key,balloon,bicycle,blanket,bone,bottle,bowl,"
    "bracelet,broom,brush,bucket,button,cake,camera,candle,carrot,chair,clock,cloud,coat,coin,cookie,crayon,crown,"
    "cup,door,dress,egg,envelope,feather,fence,flag,flute,fork,garden,gift,glove,guitar,hammer,hole,honey,ice cream,"
    "jacket,jar,jewel,jug,ladder,leaf,lemon,letter,lighthouse,magnet,map,mask,medal,mirror,mitten,mountain,mud,"
    "mushroom,necklace,needle,nest,net,nut,orange,oven,paint,pancake,pear,pebble,pencil,piano,picture,pie,pillow,"
    "pizza,plane,pot,potato,pumpkin,puzzle,rainbow,raincoat,ribbon,ring,river,rocket,rope,rose,sandcastle,sandwich,"
    "scarf,scooter,seed,shell,ship,shoe,shovel,skateboard,sled,snowflake,soap,sock,song,soup,spoon,star,stick,storm,"
    "strawberry,string,suitcase,swing,sword,table,teapot,telescope,tent,ticket,tomato,tower,toy car,tractor,train,"
    "treasure,tree,trumpet,tunnel,umbrella,vase,violin,wagon,wand,watch,watermelon,wheel,whistle,window,wolf,yarn,"
    "moon,bridge,puddle,snow,boots,bread,glasses,seesaw"
).split(",")
PLACES = (
    "in the park,in the forest,in the garden,on the beach,at home,in the kitchen,by the river,on a hill,at school,"
    "in a shop,in the barn,by the lake,on a farm,in a cave,on an island,in the city,in the attic,in the cellar,"
    "at the zoo,in a castle,on a ship,at the market,in the library,on a train,in the snow,in the desert,"
    "in the jungle,by the sea,under a bridge,in a tree house,in the meadow,on the roof,at the fair,in the mountains,"
    "in a small town,in space,at the bakery,in the woods,on a bus,in the rain,under the bed,in a swamp,at the pond,"
    "in the hospital,on the moon"
).split(",")
ADJECTIVES = (
    "little big old young brave shy clever lazy kind grumpy happy sad hungry curious tiny tall lonely funny silly "
    "quiet noisy proud sleepy fast slow small friendly careful careless honest greedy gentle clumsy polite rude "
    "strong weak jealous thankful worried playful stubborn patient selfish generous scared cheerful messy"
).split()
LOOKS = (
    "red blue green yellow golden silver shiny old new broken tiny huge round soft strange magic wooden heavy "
    "colorful warm cold wet dirty pretty purple pink black white striped sparkly bright lost secret special sweet "
    "loud"
).split()
WANTS = (
    "fly,swim,sing,dance,learn to read,bake a cake,build a house,find a friend,go to school,see the sea,"
    "climb a mountain,touch the moon,help others,ride a bicycle,paint a picture,plant a tree,make soup,sleep all day,"
    "find the way home,be a hero,win a race,catch a star,play the drum,play the piano,cross the river,have a party,"
    "eat honey,grow a pumpkin,travel the world,wear a crown,go on a picnic,make a snowman,fix a toy,write a letter,"
    "send a letter,stay up late,be a doctor,be tall,be alone,keep a secret,buy a present,find a treasure,"
    "learn to swim,learn to whistle,skip rope,go fishing,make a kite,build a tower,tell a joke,visit grandmother,"
    "pick apples,feed the birds,take a bath,clean the house,make new friends,ride on a train,sail across the lake,"
    "count the stars,hear a song,meet the king,wash the dishes,cook dinner,jump very high,run faster,stop the rain,"
    "find a lost ball,make everyone laugh"
).split(",")
FEARS = (
    "thunder,water,big dogs,spiders,the dentist,loud noises,high places,the first day of school,storms,monsters,"
    "being alone,the forest,ghosts,flying,bees,the wind,strangers,fire,the doctor,deep snow"
).split(",")
CANNOTS = (
    "fly,swim,sleep,sing,whistle,stop laughing,sit still,find the way home,say no,say sorry,share,wait,read,jump,"
    "stop eating,tie shoes,remember names,climb,keep a secret,stop talking"
).split(",")
HABITS = (
    "shares a toy,tells a lie,breaks a vase,helps a stranger,gets lost,learns to say sorry,makes a mistake,"
    "gives up a prize,finds a baby bird,saves a friend,has no friends,loves music,does not listen,never gives up,"
    "always forgets things,likes to collect stones,moves to a new house,has a bad dream,gets a new brother,gets sick,"
    "takes something without asking"
).split(",")
VERBS = (
    "run jump climb hide share help find lose open close carry fix build cook wash paint draw sing dance swim fly "
    "ride push pull throw catch kick dig plant grow pick eat drink taste smell listen whisper shout laugh cry smile "
    "hug sleep wake dream wait search follow chase race win fall break spill mix pour cut tie wear pack travel visit "
    "explore discover learn teach read write count guess promise forgive apologize thank wish hope worry rest float "
    "slide bounce spin"
).split()
RELATIVES = "mom dad grandma grandpa brother sister aunt uncle cousin friend".split()
WEATHER = "sunny rainy windy cold hot snowy cloudy foggy stormy warm".split()
